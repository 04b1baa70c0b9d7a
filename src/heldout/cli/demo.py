"""placeholder"""
import typer
app = typer.Typer()
def demo() -> None:
    """todo"""
