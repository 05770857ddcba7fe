"""The ClientApp: hands Flower's message to a worker that stays, so that a call imports neither torch nor Hydra."""

import sys

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedmuon_app.flower.worker import NoWorkerError, ask

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Which clients this node plays."""
    return _answered(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round of the client that the message names."""
    return _answered(message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """What the client that the message names says of X."""
    return _answered(message, context)


def _answered(message: Message, context: Context) -> Message:
    if "ray" not in sys.modules:  # an actor of Ray stays by itself
        try:
            return ask(message, context)
        except NoWorkerError as error:
            print(f"fedmuon: this call is answered without a worker: {error}", file=sys.stderr)
    from fedmuon_app.flower import calls

    return calls.app(message, context)
