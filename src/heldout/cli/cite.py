"""placeholder"""
import typer
app = typer.Typer()
def cite() -> None:
    """todo"""
