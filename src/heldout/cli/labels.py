"""placeholder"""
import typer
app = typer.Typer()
def labels() -> None:
    """todo"""
