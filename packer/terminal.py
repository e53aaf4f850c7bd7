from packer.stats import Stats


def show(found: Stats) -> None:
    print(found.recommendation)
