"""The ClientApp: hands Flower's message to a worker that stays, so that a call imports neither torch nor Hydra."""

import sys

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedmuon_app.flower.vce import use_all_actors
from fedmuon_app.flower.worker import NoWorkerError, ask

app = ClientApp()
use_all_actors()


@app.query()
@app.train()
@app.evaluate()
def answered(message: Message, context: Context) -> Message:
    """What :mod:`fedmuon_app.flower.calls` says to a message of any kind."""
    if "ray" not in sys.modules:  # an actor of Ray stays by itself
        try:
            return ask(message, context)
        except NoWorkerError as error:
            print(f"fedmuon: this call is answered without a worker: {error}", file=sys.stderr)
    from fedmuon_app.flower import calls

    return calls.app(message, context)
