"""Communication written out as PyTorch's runtime takes it, and read back."""

from __future__ import annotations

import pytest

from pipesim.schedules import comms, make_schedule, read_schedule, schedule_names

ONE_RANK_PER_STAGE = [name for name in schedule_names() if name not in ("dualpipe", "chimera")]
SIZES = [(1, 3), (2, 4), (4, 8), (3, 7), (5, 3)]


@pytest.mark.parametrize("name", ONE_RANK_PER_STAGE)
def test_a_round_trip_with_communication_changes_nothing(name):
    for p, m in SIZES:
        schedule = make_schedule(name, p=p, m=m)
        lowered = comms.lower(schedule)
        comms.check(lowered)
        again = comms.read_comms(lowered.to_csv())
        assert again.ranks == lowered.ranks
        assert again.computing() == schedule
        assert read_schedule(lowered.to_csv()) == schedule


@pytest.mark.parametrize("name", ["dualpipe", "chimera"])
def test_a_stage_on_two_ranks_is_refused_and_another_schedule_named(name):
    with pytest.raises(ValueError, match=r"stage 0 is on ranks 0, 1; .* Nearest: dualpipev"):
        comms.lower(make_schedule(name, p=2, m=4))


def test_a_deadlock_is_refused():
    with pytest.raises(ValueError, match="deadlocks"):
        comms.lower(read_schedule("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"))


def test_parameters_are_gathered_before_use_and_freed_after_the_last():
    lowered = comms.lower(make_schedule("interleaved_1f1b", p=2, m=4, v=5))
    for cells in lowered.ranks:
        gathered: set[str] = set()
        for cell in cells:
            if cell.endswith("UNSHARD"):
                gathered.add(cell.removesuffix("UNSHARD"))
                assert len(gathered) <= comms.MAX_ACTIVE_STAGES
            elif cell.endswith("RESHARD"):
                gathered.remove(cell.removesuffix("RESHARD"))
            elif not cell.endswith("REDUCE_GRAD") and "SEND" not in cell and "RECV" not in cell:
                assert cell.split("F")[0].split("B")[0] in gathered
        assert gathered == set()
        assert sum(cell.endswith("REDUCE_GRAD") for cell in cells) == 5


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("1RECV_F0,", ""), "1RECV_F0 of rank 1 is missing"),
        (("0F0,0SEND_F0", "0SEND_F0,0F0"), "0SEND_F0 of rank 0 comes before 0F0"),
        (("1RECV_F0,1F0", "1F0,1RECV_F0"), "1RECV_F0 of rank 1 comes after 1F0"),
        (("0SEND_F0,", "0SEND_F0,0SEND_F0,"), "0SEND_F0 of rank 0 runs 2 times"),
        (("0B0,", "0B0,0SEND_B0,"), "sends and receives where"),
        (("1F0", "1X0"), "'1X0' is no action"),
    ],
)
def test_broken_communication_is_refused_with_the_transfer(change, problem):
    text = comms.lower(make_schedule("1f1b", p=2, m=2)).to_csv()
    assert change[0] in text
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words are compared
        comms.read_comms(text.replace(*change, 1))
    assert problem in str(caught.value)


@pytest.mark.slow
def test_pytorch_reads_every_cell_and_lowers_our_orders_to_the_same():
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    for name in ONE_RANK_PER_STAGE:
        for p, m in SIZES:
            schedule = make_schedule(name, p=p, m=m)
            lowered = comms.lower(schedule)
            actions = {rank: [schedules._Action.from_str(cell) for cell in schedule.cells(rank)] for rank in range(p)}
            place = dict(zip(schedule.stage.tolist(), schedule.rank_of().tolist(), strict=True))
            theirs = {
                rank: schedules._add_reduce_grad(schedules._add_unshard_reshard(own), schedule.m)
                for rank, own in actions.items()
            }
            theirs = schedules._add_send_recv(theirs, place.__getitem__, schedule.stages)
            assert tuple(tuple(map(str, theirs[rank])) for rank in range(p)) == lowered.ranks, (name, p, m)
            for cells in lowered.ranks:
                assert [str(schedules._Action.from_str(cell)) for cell in cells] == list(cells)
