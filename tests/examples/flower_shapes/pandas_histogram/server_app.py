"""pandas_histogram: A Flower / Pandas app."""

import random
import time

import numpy as np
from flwr.app import Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """This `ServerApp` construct a histogram from partial-histograms reported by the `ClientApp`s."""
    min_nodes = 2
    fraction_sample = context.run_config["fraction-sample"]
    all_node_ids: list[int] = []
    while len(all_node_ids) < min_nodes:
        all_node_ids = list(grid.get_node_ids())
        if len(all_node_ids) >= min_nodes:
            node_ids = random.sample(all_node_ids, int(len(all_node_ids) * fraction_sample))
            break
        time.sleep(3)
    recorddict = RecordDict()
    messages = []
    for node_id in node_ids:
        messages.append(Message(content=recorddict, message_type=MessageType.QUERY, dst_node_id=node_id))
    aggregated_hist = aggregate_partial_histograms(grid.send_and_receive(messages))
    print("Aggregated histogram:", aggregated_hist)


def aggregate_partial_histograms(messages):
    """Aggregate partial histograms."""
    aggregated_hist = {}
    for rep in messages:
        if rep.has_error():
            continue
        for k, v in rep.content["query_results"].items():
            if k in ["SepalLengthCm", "SepalWidthCm"]:
                aggregated_hist[k] = aggregated_hist.get(k, 0) + np.array(v)
    return aggregated_hist
