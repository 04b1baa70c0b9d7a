"""placeholder"""
import typer
app = typer.Typer()
def audit() -> None:
    """todo"""
