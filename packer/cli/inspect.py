"""`packer inspect`."""

import click


@click.command()
def inspect() -> None:
    pass
