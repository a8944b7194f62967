"""Towers of other sizes than the tiny model's, against `transformers` and with more threads."""

import pytest
import torch

from tests.support.tiny_gemma3 import make_gemma3
from tests.support.tiny_worlds import load_models

# Patches that are no multiple of 4 or 64, heads of odd widths, and squares of 1, 2 and 4.
EYES = {
    "odd": {
        "image_size": 63, "patch_size": 9, "hidden_size": 72, "num_attention_heads": 4,
        "intermediate_size": 90, "tokens": 49,
    },
    "few": {"image_size": 6, "patch_size": 3, "tokens": 1},
    "many": {
        "image_size": 128, "patch_size": 8, "hidden_size": 144, "intermediate_size": 538,
        "num_attention_heads": 16, "tokens": 16,
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_pixels(size):
    generator = torch.Generator().manual_seed(size)
    return torch.randint(0, 256, (size, size, 3), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("name", EYES)
def test_features_equal_transformers_with_the_same_bits_for_any_threads(tmp_path, name):
    reference = make_gemma3(eyes=EYES[name])
    reference.save_pretrained(tmp_path)
    model = load_models(tmp_path, 1)[0]
    pixels = make_pixels(EYES[name]["image_size"])
    values = (pixels.permute(2, 0, 1)[None].float() / 255 - 0.5) / 0.5
    with torch.inference_mode():
        expected = reference.get_image_features(values).pooler_output[0]

    found = model.encode_image(pixels)

    biggest = expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * biggest)
    assert model.images.num_tokens == EYES[name]["tokens"] == len(found)
    for num_threads in (2, 3):
        torch.set_num_threads(num_threads)
        assert torch.equal(model.encode_image(pixels), found)


def test_half_the_bits_stay_near_the_reference(tmp_path):
    reference = make_gemma3().to(torch.bfloat16)
    reference.save_pretrained(tmp_path)
    pixels = make_pixels(28)
    values = (pixels.permute(2, 0, 1)[None].float() / 255 - 0.5) / 0.5
    with torch.inference_mode():
        expected = reference.get_image_features(values.bfloat16()).pooler_output[0]
    found = load_models(tmp_path, 1, torch.bfloat16)[0].encode_image(pixels)
    assert found.dtype == torch.bfloat16
    alike = torch.nn.functional.cosine_similarity(found.float(), expected.float(), dim=1)
    assert alike.min() > 0.999
