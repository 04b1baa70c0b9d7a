"""placeholder"""

import typer

app = typer.Typer()


def doctor() -> None:
    """todo"""
