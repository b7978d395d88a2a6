"""All runs of a file store of MLflow, as MLflow's own client reads them: python_mlflow.py STORE. Prints JSON."""
import json
import pathlib
import sys

from mlflow.tracking import MlflowClient

client = MlflowClient(tracking_uri=pathlib.Path(sys.argv[1]).resolve().as_uri())
found = {}
for experiment in client.search_experiments():
    found[experiment.name] = []
    for run in client.search_runs([experiment.experiment_id]):
        info = run.info
        found[experiment.name].append({
            'id': info.run_id, 'name': info.run_name, 'status': info.status, 'start': info.start_time, 'end': info.end_time,
            'params': run.data.params, 'tags': run.data.tags, 'artifacts': [a.path for a in client.list_artifacts(info.run_id)],
            # floats as text, because JSON has no NaN
            'metrics': {name: [[m.step, repr(m.value), m.timestamp] for m in client.get_metric_history(info.run_id, name)] for name in run.data.metrics}})
print(json.dumps(found))
