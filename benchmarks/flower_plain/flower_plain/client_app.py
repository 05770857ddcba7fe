"""The ClientApp; a client's momentum is in Flower's context.state."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_plain.task import data_of, local_steps, model_of

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round."""
    torch.set_num_threads(1)
    run = context.run_config
    model = model_of(str(run["model"]))
    model.load_state_dict(message.content["X"].to_torch_state_dict())
    C = message.content["C"].to_torch_state_dict()
    if "M" in context.state:
        C_i = context.state["M"].to_torch_state_dict()
    else:
        C_i = {w: torch.zeros_like(x) for w, x in C.items()}
    M = dict(C_i)
    if run["model"] == "lenet":
        data = data_of(int(context.node_config["partition-id"]), int(run["clients"]))
        local_steps(model, M, C_i, C, data, int(run["steps"]), int(run["batch"]))
    context.state["M"] = ArrayRecord(M)
    content = RecordDict(
        {
            "X": ArrayRecord(model.state_dict()),
            "dC": ArrayRecord({w: M[w] - C_i[w] for w in M}),
            "metrics": MetricRecord({"num-examples": 1}),
        }
    )
    return Message(content, reply_to=message)
