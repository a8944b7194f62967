"""What a plan must keep to, with few words."""

from lanehost.lanes.scheduler import StepFrame


def make_frame(
    step_id: int = 1,
    *,
    budget: int = 8,
    fill: int | None = None,
    max_prompts: int = 16,
    weights: dict[str, int] | None = None,
) -> StepFrame:
    return StepFrame(
        step_id=step_id,
        follows=step_id - 1,
        epoch=1,
        max_step_tokens=budget,
        max_fill_tokens=fill or budget,
        max_prompts=max_prompts,
        weights=weights or {},
    )
