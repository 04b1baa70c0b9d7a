"""Both towers of open_clip as an encoder, with random weights of a small architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch

from heldout.core.errors import NotFound, UserError
from heldout.core.workspace import Workspace
from heldout.curate.zero_shot.class_texts import ClassPrompts, class_embeddings
from heldout.data.labels import LabelSpace
from heldout.models.adapters import Encoder, load_encoder, load_model
from heldout.models.adapters.open_clip import OpenClipEncoder
from heldout.models.adapters.prompts import prompt_templates
from tests.torch.test_open_clip import architectures as architectures  # the tiny architecture

CIFAR = LabelSpace.load("cifar-10")


def tiny(**arguments: Any) -> Encoder:
    return load_encoder("open_clip:tiny", pretrained=False, device="cpu", **arguments)


def images(n: int = 5) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 64, 64, 3), np.uint8)


def test_vectors_are_open_clips_own() -> None:
    encoder = tiny(seed=3)
    assert isinstance(encoder, OpenClipEncoder)
    torch.manual_seed(3)
    clip = open_clip.create_model("tiny").eval()
    mean, std = (
        torch.tensor(values).reshape(1, 3, 1, 1)
        for values in (encoder.preprocessing.mean, encoder.preprocessing.std)
    )
    batch = (torch.from_numpy(images()).permute(0, 3, 1, 2).float() / 255 - mean) / std
    texts = ["a photo of a dog.", "a cat"]
    with torch.inference_mode():
        image = clip.encode_image(batch, normalize=True).numpy()
        text = clip.encode_text(open_clip.get_tokenizer("tiny")(texts), normalize=True).numpy()
    np.testing.assert_allclose(encoder.encode_images(images()), image, atol=2e-5)
    np.testing.assert_allclose(encoder.encode_texts(texts), text, atol=2e-5)
    assert encoder.dimension == 32
    assert encoder.scale == pytest.approx(float(clip.logit_scale.detach().exp()))
    assert encoder.encode_texts([]).shape == (0, 32)


def test_zero_shot_over_its_vectors_is_the_classifier(tmp_path: Path) -> None:
    """Scale times the cosines of encoder and class vectors are the logits of the classifier."""
    encoder = tiny(seed=5)
    classifier = load_model(
        "open_clip:tiny",
        pretrained=False,
        seed=5,
        classes="cifar-10",
        templates="openai",
        device="cpu",
    )
    prompts = ClassPrompts(CIFAR, names="first", templates="openai")
    classes = class_embeddings(encoder, prompts, workspace=Workspace(tmp_path))
    logits = classifier(images()).logits  # type: ignore[operator]
    found = encoder.scale * encoder.encode_images(images()) @ classes.vectors.T
    np.testing.assert_allclose(found, logits, atol=2e-3)


def test_openai_templates_are_those_that_open_clip_carries() -> None:
    published = tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES)
    assert prompt_templates("openai") == published
    assert len(published) == 80


def test_identity_follows_the_weights() -> None:
    assert tiny(seed=1).identity == tiny(seed=1).identity
    assert tiny(seed=1).identity != tiny(seed=2).identity
    assert tiny(dtype="bfloat16").identity != tiny().identity


def test_half_precision_is_near() -> None:
    exact, half = tiny().encode_images(images()), tiny(dtype="bfloat16").encode_images(images())
    assert (exact * half).sum(axis=1).min() > 0.99
    assert tiny(dtype="bfloat16").encode_texts(["a dog"]).shape == (1, 32)


def test_what_does_not_exist_is_told() -> None:
    with pytest.raises(NotFound, match="no architecture"):
        load_encoder("open_clip:ViT-Z-99/openai")
    with pytest.raises(UserError, match="which weights"):
        load_encoder("open_clip:ViT-B-32")
    with pytest.raises(UserError, match="dtype"):
        tiny(dtype="int8")
