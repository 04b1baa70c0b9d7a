"""placeholder"""
import typer
app = typer.Typer()
def verify() -> None:
    """todo"""
