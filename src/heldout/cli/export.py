"""placeholder"""
import typer
app = typer.Typer()
def export() -> None:
    """todo"""
