"""placeholder"""
import typer
app = typer.Typer()
def fetch() -> None:
    """todo"""
