"""placeholder"""
import typer
app = typer.Typer()
def diff() -> None:
    """todo"""
