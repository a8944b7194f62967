from tests.support.jobs import make_sequence


def test_a_sequence_is_prompt_and_what_was_generated():
    sequence = make_sequence((1, 2), max_tokens=3, job_id="j")
    sequence.generated_ids.append(9)
    assert sequence.token_ids == (1, 2, 9)
    assert sequence.num_left == 2
    assert repr(sequence) == "<Sequence j 2 prompt, 1 generated>"
