"""Small inputs of every kind, drawn from seeds with integers only, so that any machine draws the same."""

from __future__ import annotations

import csv
import json
import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

WNIDS = [
    "n01440764", "n01443537", "n01484850", "n01491361", "n01494475",
    "n01496331", "n01498041", "n01514668", "n01514859", "n01518878",
]  # fmt: skip
"""The first ten classes of ImageNet-1k, in its order."""
COLOURS = ("red", "green", "blue", "grey")
SKILLS = {"oak": 9, "elm": 8, "fir": 6, "yew": 5}
MODEL = """
import numpy as np


def predict(images):
    sums = images.astype(np.int64).sum(axis=(2, 3))
    grey = (sums.min(axis=1) * 3 - sums.max(axis=1)) * WEIGHT
    logits = np.zeros((len(images), SIZE), np.float32)
    logits[:, COLUMNS] = np.column_stack([sums, grey])[:, : len(COLUMNS)] / 1024
    return logits, sums.astype(np.float32)
"""


def write(path: Path, value: Any) -> Path:
    """A file of text, JSON, rows or an array, its folders made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, value)
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(value), path)
    elif path.suffix == ".pkl":
        path.write_bytes(pickle.dumps(value, protocol=4))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in value))
    elif isinstance(value, str):
        path.write_text(value)
    else:
        path.write_text(json.dumps(value))
    return path


def rows_csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    rows = list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def answers(rng: np.random.Generator, labels: np.ndarray, classes: int, skill: int) -> np.ndarray:
    """Top 5 of a model that is right in about ``skill`` of ten images, near where it is wrong."""
    top = np.stack([rng.permutation(classes)[:5] for _ in labels])
    for row, label in zip(top, labels, strict=True):
        best = label if rng.integers(10) < skill else (label + rng.integers(1, 3)) % classes
        found = np.flatnonzero(row == best)
        row[found[0] if len(found) else 4], row[0] = row[0], best
    return top.astype(np.int16)


def lists(root: Path) -> None:
    """Published lists without images: two revisions of a set, three truths, four models."""
    rng = np.random.default_rng(1)
    wide = [f"n{20_000_000 + i:08d}" for i in range(5)]
    info = [
        {"cid": i, "wnid": w, "synset": [f"thing {i}"], "gloss": "a thing"}
        for i, w in enumerate(wide)
    ]
    write(root / "published/metadata/class_info.json", info)
    for place, name in enumerate(("imagenet-validation-original", "new-set-1")):
        rows = [[f"{name}-{i:03d}", wide[i % 5]] for i in range(60)]
        rng.shuffle(rows)
        write(root / f"published/datasets/{name}.json", {"image_filenames": rows, "seed": 1})
        labels = np.array([wide.index(wnid) for _, wnid in rows])
        for model, skill in SKILLS.items():
            top = answers(rng, labels, 5, skill - place)
            top = top[:, ::-1] if (model, place) == ("fir", 1) else top
            alias = "_model" if (model, place) == ("yew", 1) else ""
            write(root / f"published/predictions/{name}/{model}{alias}.npy", top)
    ids = [f"ILSVRC2012_val_{i + 1:08d}.JPEG" for i in range(120)]
    labels = np.arange(120) % 10
    rows = [[i, WNIDS[n % 10]] for n, i in enumerate(ids)]
    write(root / "val.json", {"image_filenames": rows})
    write(root / "val-2.json", {"image_filenames": [*rows[:90], ["other", WNIDS[0]]]})
    write(root / "candidates.json", [f"c{n:03d}" for n in range(50)])
    write(root / "candidate_classes.json", {f"c{n:03d}": WNIDS[n * n % 3] for n in range(50)})
    write(root / "crowd/crowd/key", "0" * 64)
    rows_csv(
        root / "marks.csv",
        [
            {
                "image_id": f"m{n}",
                "class_id": WNIDS[n % 3],
                "control": ("positive", "negative")[n // 3 % 2],
            }
            for n in range(30)
        ],
    )
    votes = [
        {
            "question": "vote",
            "image_id": i,
            "class_id": WNIDS[n % 10],
            "answer": ("selected", "not-selected")[n * person % 7 // 4],
            "who": f"p{person}",
        }
        for n, i in enumerate(ids)
        for person in range(3)
    ]
    rows_csv(root / "selections.csv", votes)
    for model, skill in SKILLS.items():
        top = answers(rng, labels, 10, skill)
        write(root / f"top/{model}.npy", top)
    logits = rng.integers(-40, 40, (120, 1000)).astype(np.float32) / 8
    logits[np.arange(120), (labels + (rng.integers(10, size=120) < 3)) % 10] += 8
    write(root / "logits/ash.npy", logits)
    write(root / "narrow.npy", logits[:, :4])
    table = [
        {
            "id": i,
            "original_label": c,
            "correct_multi_labels": f"{c},{(c + 1) % 10}" if n % 4 == 0 else c,
            "unclear_multi_labels": (c + 2) % 10 if n % 6 == 1 else "",
            "wrong_multi_labels": (c + 1) % 10 if n % 5 == 1 else "",
            "is_problematic": n % 17 == 16,
        }
        for n, (i, c) in enumerate(zip(ids, labels.tolist(), strict=True))
    ]
    rows_csv(root / "multilabel.csv", table[:100])
    real = [
        [] if n % 20 == 19 else sorted({int(c), int(c + 1) % 10}) if n % 3 == 0 else [int(c)]
        for n, c in enumerate(labels)
    ]
    write(root / "real/real.json", real)
    pairs = np.array([[i, str(n % 10)] for n, i in enumerate(ids[:80])])
    np.savez(root / "scores.npz", tensor=(np.arange(80) % 11 / 10).astype(np.float32), info=pairs)
    for name, step in (("vit3b", 2), ("greedy_soups", 3)):
        judged = {
            ids[n]: {
                "top_prediction": int(labels[n] + 1 + n % 2) % 10,
                "failure category": ("Fine-grained error", "Spurious Correlation")[n // 2 % 2],
                "failure severity": ("Major", "Minor", "Borderline")[n % 3 if n % 2 else 0],
            }
            for n in range(3, 100, step)
        }
        write(root / f"{name}_mistakes.json", judged)
    pairs_file = [[WNIDS[c], WNIDS[c + 1], 2] for c in range(9)]
    write(root / "class_confusion_wnids.json", pairs_file)
    write(root / "superclasses.json", {"fish": WNIDS[:7], "bird": WNIDS[7:]})
    write(root / "listed.txt", "\n".join(ids[4:40:4]))
    write(root / "blacklist.json", {ids[0]: "broken", ids[5]: "drawing"})
    write(root / "near_duplicates.json", {ids[1]: [ids[2]], ids[3]: [ids[0], ids[7]]})
    write(root / "foreign.txt", f"{ids[8]}\n{ids[9]}\nelsewhere\n")
    rows_csv(
        root / "population.csv",
        [{"model": f"m{n}", "old": 40 + n, "new": 20 + n + n % 3} for n in range(12)],
    )


def picture(path: Path, seed: int, base: Iterable[int], size: tuple[int, int]) -> None:
    """A noisy image of one colour."""
    noise = np.random.default_rng(seed).integers(-50, 50, (size[1], size[0], 3))
    pixels = np.clip(noise + np.array(list(base)), 0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **({"quality": 90} if path.suffix == ".jpg" else {}))


def space(name: str, ids: Iterable[str]) -> dict[str, Any]:
    """A label space as a file."""
    classes = [{"id": one, "names": [one]} for one in ids]
    return {"schema_version": 1, "kind": "label_space", "name": name, "classes": classes}


def models(
    root: Path, weights: dict[str, int], columns: list[int], size: int, space: str = "space.json"
) -> None:
    """Models in files of a user's own: a function and its sidecar, nothing of heldout in them."""
    for name, weight in weights.items():
        text = MODEL.replace("WEIGHT", str(weight)).replace("SIZE", str(size))
        write(root / f"{name}.py", text.replace("COLUMNS", str(columns)))
        geometry = {"resize": "exact", "resize_height": 10, "resize_width": 10}
        sidecar = {
            "schema_version": 1,
            "name": name,
            "label_space": space,
            "preprocessing": {
                **geometry,
                "interpolation": "bilinear",
                "crop_height": 8 + 2 * (weight > 2),
                "crop_width": 8 + 2 * (weight > 2),
                "scale": 1,
                "mean": [0, 0, 0],
                "std": [1, 1, 1],
            },
            "files": [],
        }
        write(root / f"{name}.json", sidecar)


def images(root: Path) -> None:
    """Folders of coloured images in two domains, three models, vectors, an encoder."""
    ids, vectors = [], []
    rng = np.random.default_rng(2)
    for d, domain in enumerate(("photo", "sketch")):
        for c, name in enumerate(COLOURS):
            for n in range(8):
                # Some images look like the next colour: mistakes for the models to make.
                look = (c + 1) % 4 if (3 * n + c + d) % 5 == 0 else c
                base = [70 + 80 * (look in (k, 3)) for k in range(3)]
                ending = "jpg" if n % 3 == 0 else "png"
                place = f"{domain}/{name}/{n}.{ending}"
                picture(root / "photos" / place, 64 * d + 8 * c + n, base, (12 + n, 10 + c))
                ids.append(place)
                vectors.append([8 * (k == look) + rng.integers(5) + 2 * d for k in range(4)])
    np.savez(root / "vectors.npz", vectors=np.array(vectors, np.float32), ids=np.array(ids))
    write(root / "space.json", space("colours", COLOURS))
    models(root, {"ash": 1, "bay": 2, "cox": 5}, [0, 1, 2, 3], 4)
    np.save(root / "c.npy", np.eye(4, dtype=np.float32))
    raw = rng.integers(-30, 30, (64, 4)).astype(np.float32)
    write(root / "theirs.npy", raw)
    write(root / "short.npy", raw[:9])
    cells = rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    write(root / "small_v1_data.npy", cells)
    write(root / "small_v1_labels.npy", np.arange(12) % 10)
    (root / "broken").mkdir()
    for name in COLOURS[:2]:
        picture(root / f"broken/{name}/1.png", 7, (200, 60, 60), (9, 9))
        write(root / f"broken/{name}/2.png", "no image")
    table = "image_id,class_id,light,angle\n" + "".join(
        f"{place},{place.split('/')[1]},{('day', 'night')[n % 2]},{90 * (n % 4)}\n"
        for n, place in enumerate(ids)
    )
    write(root / "table.csv", table)
    photo = next(place for place in ids if "/red/" in place)
    rows_csv(
        root / "addresses.csv",
        [
            {"uri": photo, "class_id": "red", "licence": "CC0-1.0", "owner": "me"},
            {"uri": "http://127.0.0.1:9/a.jpg", "class_id": "blue", "licence": "", "owner": ""},
        ],
    )
    write(
        root / "seen.jsonl",
        [{"image_id": i, "tag": [i.split("/")[1], *i.split("/")[::2]]} for i in ids],
    )
    votes = "".join(
        f"vote,photo/red/{n}.png,red,{who},{('selected', 'not-selected')[(n + len(who)) % 2]}\n"
        for n in (1, 2, 4)
        for who in ("ann", "bob", "cyril")
    )
    write(root / "votes.csv", "question,image_id,class_id,who,answer\n" + votes)


def contexts(root: Path) -> None:
    """Images in context: subsets, scene graphs, captions, tables; a tree of classes; a log."""
    rng = np.random.default_rng(3)
    homes = {"bed": 0, "sofa": 0, "rug": 0, "grass": 1, "tree": 1, "beach": 1, "car": 2}
    subsets: dict[str, list[str]] = {}
    tagged = []
    for n in range(260):
        home = int(rng.integers(3))
        subjects = ("cat", "dog") if n % 9 == 0 else (("cat", "dog")[n % 2],)
        tags: list[str] = list(subjects)
        for subject in subjects:
            own = [c for c in homes if rng.integers(100) < (75 if homes[c] == home else 5)]
            for context in own or ["car"]:
                subsets.setdefault(f"{subject}({context})", []).append(str(1000 + n))
                subsets.setdefault(f"{context}(seen)", []).append(str(1000 + n))
                tags.append(context)
        tagged.append({"image_id": str(1000 + n), "tag": sorted(set(tags)), "hour": n % 3})
    # Lists where the published file has sets: the bytes of a pickled set depend on the hash seed.
    write(root / "data/attributes-candidate-subsets.pkl", subsets)
    write(root / "tagged.jsonl", tagged)
    for model, far in (("near", 35), ("wide", 90)):
        rows = []
        for row in tagged:
            inside = any(homes.get(tag) == 0 for tag in row["tag"])
            right = rng.integers(100) < (95 if inside else far)
            said = "cat" if ("cat" in row["tag"]) == right else "dog"
            rows.append({"image_id": row["image_id"], "prediction": said})
        rows_csv(root / f"{model}.csv", rows)
    names = [(1, "cat", "animal"), (2, "couch", "furniture"), (3, "car", "vehicle")]
    coco = {
        "images": [
            {"id": i, "file_name": f"{i}.jpg", "width": 90, "height": 60} for i in range(1, 31)
        ],
        "annotations": [
            {"id": 2 * i + k, "image_id": i, "category_id": c, "bbox": [0, 0, 30, 30 + k]}
            for i in range(1, 31)
            for k, c in enumerate((1, 2 + i % 2))
        ],
        "categories": [{"id": i, "name": n, "supercategory": s} for i, n, s in names],
    }
    write(root / "instances.json", coco)
    told = [{"id": n, "image_id": n + 1, "caption": f"A cat's {w}."} for n, w in enumerate(homes)]
    write(root / "captions.json", {"images": coco["images"], "annotations": told})
    groups = [
        {"image": f"{kind}{n:03d}", "group": f"{kind}({place})"}
        for kind in ("cat", "dog")
        for place, first, size in (("indoor", 0, 50), ("outdoor", 50, 40))
        for n in range(first, first + size)
    ]
    rows_csv(root / "groups.csv", groups)
    log = ["step,subset,trained,score"]
    level = {"cat(bed)": 500, "cat(car)": 500}
    for step in range(9):
        seen = {name: int(rng.integers(1, 9)) if step else 0 for name in level}
        level["cat(bed)"] += 10 * seen["cat(bed)"] - 5 * seen["cat(car)"]
        level["cat(car)"] += 10 * seen["cat(car)"] + 3 * seen["cat(bed)"]
        log += [f"{step},{name},{seen[name]},{level[name] / 1000}" for name in level]
    write(root / "log.csv", "\n".join(log) + "\n")


def compose(root: Path) -> None:
    """Cut-outs, photographs with masks, backgrounds, and a model of two of their classes."""
    ys, xs = np.mgrid[-1:1:60j, -1:1:80j]
    for place, (name, base) in enumerate({"lemon": (220, 210, 40), "vase": (60, 90, 200)}.items()):
        for n in range(2):
            stem = f"{name}/{n}"
            picture(root / f"photos/{stem}.png", 10 * place + n, base, (80, 60))
            pixels = np.asarray(Image.open(root / f"photos/{stem}.png"))
            inside = xs**2 + (1 + n) * ys**2 < 0.7
            for folder in ("masks", "fg"):
                (root / folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray((255 * inside).astype(np.uint8)).save(root / f"masks/{stem}.png")
            alpha = np.dstack([pixels, 255 * inside]).astype(np.uint8)
            Image.fromarray(alpha).save(root / f"fg/{stem}.png")
            (root / "data/foreground_samples" / name).mkdir(parents=True, exist_ok=True)
            if n == 0:
                Image.fromarray(alpha).save(root / f"data/foreground_samples/{stem}.png")
    for n, base in enumerate(((30, 60, 30), (200, 200, 210), (90, 40, 20))):
        picture(root / f"bg/{n}.{'jpg' if n else 'png'}", 40 + n, base, (70 + 9 * n, 64))
        picture(root / f"data/background_samples/{n}.png", 40 + n, base, (70 + 9 * n, 64))
    write(root / "space.json", space("folders", ("lemon", "vase")))
    models(root, {"ash": 1, "bay": 5}, [0, 1], 2)
    models(root, {"wide": 2}, [951, 883], 1000, "imagenet-1k")


def domains(root: Path) -> None:
    """Rows with similarities and domains; archives, frames and lists to collect from."""
    rng = np.random.default_rng(5)
    wnids = ["n04334599", "n04157320", "n09217230", "n04407435"]
    rows: list[tuple[str, str, str, str, float]] = []
    for wnid, size in zip(wnids, (140, 100, 60, 24), strict=True):
        for n in range(size):
            place = "Oceania" if n < size // 20 else ("Africa", "Asia", "Europe")[n % 3]
            near = 0.5 + float(rng.integers(4000)) / 10_000
            rows.append((f"{wnid}-{n}", wnid, place, f"u{n % 30}", near))
    order = rng.permutation(len(rows))
    columns = list(zip(*(rows[i] for i in order), strict=True))
    names = ("image_id", "class_id", "continent", "uid", "similarity")
    write(root / "rows.parquet", dict(zip(names, map(list, columns), strict=True)))
    write(root / "space.json", space("things", wnids))
    drawn, rising = rng.permutation(100)[:50], np.sort(rng.permutation(100)[:30] + 100)
    write(root / "i.npy", np.concatenate([drawn, rising]))
    many, few = rng.permutation(3000)[:2000], np.sort(rng.permutation(90)[:60] + 3000)
    write(root / "released/350_sample_indices.npy", np.concatenate([many, few]))
    write(root / "released/350_label_wnids.csv", (root / "c.csv").read_text())
    frame = {"file_name": [f"k{i}" for i in range(200)], "country": ["a", "b"] * 100}
    write(root / "frame.parquet", frame)
    write(
        root / "geo.parquet",
        {
            "yfcc_row_id": [3, 5],
            "country": ["Kenya", "Peru"],
            "country_id": [0, 1],
            "in_5k_label_ids": [[7], [7, 9]],
            "is_train": [True, False],
        },
    )


# What happens between commands


def fill(queue: str, to: str, who: str) -> None:
    """A queue filled in by a simulated reviewer."""
    with Path(queue).open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    for place, row in enumerate(rows):
        if (place + len(who)) % 7 == 6:
            continue  # left for later
        row["who"] = who
        row["answer"] = "correct" if place % 6 == 5 else "wrong"
        if row["answer"] == "wrong" and "severity" in row:
            row["category"] = "Fine-grained error" if place % 4 else "Spurious Correlation"
            row["severity"] = "Minor" if (place + len(who)) % 5 == 0 else "Major"
    rows_csv(Path(to), rows)


def label(queue: str, to: str) -> None:
    """Images that were asked about, with the classes of their folders."""
    with Path(queue).open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    named = [{"image_id": r["image_id"], "class_id": r["image_id"].split("/")[1]} for r in rows]
    write(Path(to), named)


def guess(testset: str, to: str) -> None:
    """What a model might say of the images of a set: the class, or the next one for every fourth."""
    truth = pq.read_table(f"testsets/{testset}/truth/original.parquet").to_pylist()
    ids = sorted({row["class_id"] for row in truth})
    rows = []
    for n, row in enumerate(truth):
        place = ids.index(row["class_id"]) + (n % 4 == 3)
        rows.append({"image_id": row["image_id"], "prediction": ids[place % len(ids)]})
    rows_csv(Path(to), rows)


def overwrite(path: str) -> None:
    """Damage: other bytes where there was a file."""
    Path(path).write_bytes(b"something else")


def shared(root: Path) -> None:
    """The published data beside the checkout, and what their acceptance commands need."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    (root / "data").symlink_to(Path(os.environ.get("HELDOUT_SHARED_DATA", beside)).resolve())
    names = sorted(path.name for path in (root / "data/photos").glob("*.JPEG"))
    rows_csv(root / "photos.csv", ({"image_id": n, "path": n, "class_id": n[:9]} for n in names))
    groups = [
        {"image": f"{kind}{n:04d}", "group": f"{kind}({place})"}
        for kind, rare in (("cat", "outdoor"), ("dog", "indoor"))
        for place, first in (("indoor", 0), ("outdoor", 2000))
        for n in range(first, first + (294 if place == rare else 994))
    ]
    rows_csv(root / "groups.csv", groups)
    samples = ("foregrounds", "foreground"), ("backgrounds", "background")
    text = "".join(f'{name} = "data/siscore/{kind}_samples"\n' for name, kind in samples)
    write(root / "size.toml", text + "[factors]\nsize = [0.02, 0.05, 0.1, 0.2, 0.5]\n")


WORLDS = {"lists": lists, "images": images, "contexts": contexts, "compose": compose,
          "domains": domains}  # fmt: skip
HOOKS = {"fill": fill, "label": label, "guess": guess, "overwrite": overwrite}
