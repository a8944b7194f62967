"""One image to its rows: what it may be, what goes wrong with it, and what its digest covers."""

import threading

import pytest
import torch

from ranks.images.encoder import NUM_THREADS, BadImage, Encoder, digest_rows, prepare_thread
from ranks.wire.image_messages import ImageFault
from tests.support.image_models import FACTS, ImageModel, image


def test_an_image_gives_its_rows_and_their_digest():
    encoded = Encoder(ImageModel()).encode(image(7))
    assert encoded.rows.tolist() == [[10.0, 5.0, 7.0]] * 2
    assert encoded.rows.is_contiguous()
    assert encoded.digest == digest_rows(encoded.rows)


def fault_of(model, work):
    with pytest.raises(BadImage) as caught:
        Encoder(model).encode(work)
    return caught.value.fault, str(caught.value)


def test_a_model_without_images_and_another_size_are_refused_in_words():
    assert fault_of(ImageModel(None), image(1)) == (
        ImageFault.SHAPE,
        "this model takes no images",
    )
    wide = image(1, width=3, pixels=bytes(9))
    assert fault_of(ImageModel(), wide) == (
        ImageFault.SHAPE,
        f"it has 3 by 1 pixels, this model takes {FACTS.width} by {FACTS.height}",
    )


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("x")])
def test_want_of_memory_is_the_fault_of_the_image(error):
    model = ImageModel()
    model.fails[1] = error
    assert fault_of(model, image(1))[0] is ImageFault.OUT_OF_MEMORY


def test_rows_that_are_no_numbers_or_too_few_are_its_fault_too():
    model = ImageModel()
    model.spoils.add(1)
    assert fault_of(model, image(1))[0] is ImageFault.NOT_FINITE
    model.num_rows = 1
    assert fault_of(model, image(2)) == (
        ImageFault.SHAPE,
        "it has 1 rows, images of this model 2",
    )


def test_a_digest_covers_every_bit_and_the_shape():
    rows = torch.arange(6, dtype=torch.float32).view(2, 3)
    others = [rows.clone(), rows.view(3, 2), rows.to(torch.bfloat16), -rows]
    others[0][1, 2] = torch.nextafter(rows[1, 2], torch.tensor(9.0))
    digests = {digest_rows(one.contiguous()) for one in (rows, *others)}
    assert len(digests) == 5
    assert digest_rows(rows) == digest_rows(rows.clone())
    assert len(digest_rows(rows)) == 16


def test_the_thread_that_encodes_takes_no_thread_of_computation_from_others():
    before, within = torch.get_num_threads(), []

    def run():
        prepare_thread()
        within.append(torch.get_num_threads())

    torch.set_num_threads(2)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert (torch.get_num_threads(), within) == (2, [NUM_THREADS])
    finally:
        torch.set_num_threads(before)
