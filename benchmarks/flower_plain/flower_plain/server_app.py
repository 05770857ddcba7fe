"""The ServerApp: its own loop, Flower's send_and_receive."""

import json
import random
import time
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from flower_plain.task import model_of

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds."""
    run = context.run_config
    n, S = int(run["clients"]), int(run["sampled"])
    X = dict(model_of(str(run["model"])).state_dict())
    C = {w: torch.zeros_like(x) for w, x in X.items()}
    while len(nodes := sorted(grid.get_node_ids())) < n:
        time.sleep(0.1)
    seconds = []
    for _ in range(int(run["rounds"])):
        start = time.perf_counter()
        record = RecordDict({"X": ArrayRecord(X), "C": ArrayRecord(C)})
        messages = [Message(record, dst_node_id=i, message_type=MessageType.TRAIN) for i in random.sample(nodes, S)]
        X_next = dict(X)
        for reply in grid.send_and_receive(messages):
            X_i, dC = (reply.content[name].to_torch_state_dict() for name in ("X", "dC"))
            X_next = {w: x + (X_i[w] - X[w]) / n for w, x in X_next.items()}
            C = {w: x + dC[w] / n for w, x in C.items()}
        X = X_next
        seconds.append(time.perf_counter() - start)
    Path(str(run["out"])).write_text(json.dumps(seconds))
