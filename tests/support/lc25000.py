"""A small LC25000: generated pictures in its folders, with the groups.csv that says which come from one tile."""

import csv
from pathlib import Path

from support.image_sets import write_picture

CLASS_FOLDERS = {
    "colon_aca": "colon_image_sets/colon_aca",
    "colon_n": "colon_image_sets/colon_n",
    "lung_aca": "lung_image_sets/lung_aca",
    "lung_n": "lung_image_sets/lung_n",
    "lung_scc": "lung_image_sets/lung_scc",
}


def write_lc25000(
    root: Path, tiles: int = 5, per_tile: int = 4, side: int = 12, *, flat: bool = False, groups: bool = True
) -> Path:
    """Write the set and return its folder; picture k of a class comes from tile k modulo ``tiles``."""
    folder = root / "lung_colon_image_set"
    lines = []
    for number, (name, place) in enumerate(CLASS_FOLDERS.items()):
        for picture in range(tiles * per_tile):
            file = f"{name.replace('_', '')}{picture + 1}.jpeg"
            seed = 1000 * number + picture % tiles
            write_picture(folder / (name if flat else place) / file, seed=seed, side=side)
            lines.append([name, file, str(picture % tiles)])
    if groups:
        with (folder / "groups.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([["class", "file", "group"], *lines])
    return folder
