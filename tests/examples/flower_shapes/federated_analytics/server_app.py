"""federated_analytics: A Flower / Federated Analytics app."""

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """This `ServerApp` queries statistics of features over all nodes."""
    recorddict = RecordDict({"config": ConfigRecord({"features": ["age", "bmi"]})})
    messages = []
    for node_id in grid.get_node_ids():
        messages.append(Message(content=recorddict, message_type=MessageType.QUERY, dst_node_id=node_id))
    aggregated_stats = aggregate_features(grid.send_and_receive(messages))
    print("Aggregated statistics:", aggregated_stats)


def aggregate_features(messages):
    """Sum what the nodes report, and divide."""
    total = {}
    for rep in messages:
        if rep.has_error():
            continue
        for k, v in rep.content["query_results"].items():
            total[k] = total.get(k, 0) + v
    return {name: total[f"{name}_sum"] / total[f"{name}_count"] for name in ("age", "bmi")}
