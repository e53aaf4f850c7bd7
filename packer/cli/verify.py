"""`packer verify`."""

import click


@click.command()
def verify() -> None:
    pass
