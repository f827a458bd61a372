"""Every action's spans, simulated and of every repeat, as a table."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipesim.schedules.action import Op
from pipesim.simulate import Beside


def spans_parquet(beside: Beside) -> bytes:
    """A row for each action, in the order of the schedule; measured times are lists with an entry for each repeat."""
    schedule, simulated = beside.simulated.schedule, beside.simulated
    starts_s = np.stack([each.start_s for each in beside.measured], axis=1)
    ends_s = np.stack([each.end_s for each in beside.measured], axis=1)
    table = pa.table(
        {
            "rank": pa.array(schedule.rank_of(), pa.int64()),
            "stage": pa.array(schedule.stage, pa.int64()),
            "op": pa.array([Op(op).name for op in schedule.op.tolist()]),
            "micro_batch": pa.array(schedule.micro_batch, pa.int64()),
            "overlapped": pa.array(schedule.joined | np.r_[False, schedule.joined[:-1]]),
            "simulated_start_s": pa.array(simulated.start_s),
            "simulated_end_s": pa.array(simulated.end_s),
            "measured_start_s": pa.array(list(starts_s), pa.list_(pa.float64())),
            "measured_end_s": pa.array(list(ends_s), pa.list_(pa.float64())),
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", store_schema=False)
    return buffer.getvalue()
