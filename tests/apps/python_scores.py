"""scikit-learn's scores of a classification: python_scores.py LOGITS.npy LABELS.json. Prints one JSON document, by the names of npu_train."""
import json
import sys

import numpy
from sklearn import metrics

logits = numpy.load(sys.argv[1]).astype(numpy.float64)
labels = numpy.array(json.load(open(sys.argv[2])))
predicted, truth = logits.argmax(1), numpy.eye(logits.shape[1])[labels]
out = {}
for average, suffix in (('macro', ''), ('micro', '_micro'), ('weighted', '_weighted')):
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(labels, predicted, average=average, zero_division=0)
    out |= {'precision' + suffix: precision, 'recall' + suffix: recall, 'f1' + suffix: f1}
out['recall_1'] = metrics.recall_score(labels, predicted, labels=[1], average=None)[0]
probabilities = numpy.exp(logits - logits.max(1, keepdims=True))
probabilities /= probabilities.sum(1, keepdims=True)
out['auroc'] = metrics.roc_auc_score(labels, probabilities, multi_class='ovr')
out['map'] = metrics.average_precision_score(truth, probabilities, average='macro')
confidence = probabilities.max(1)
bins = numpy.digitize(confidence, numpy.linspace(0, 1, 16), right=True)
gap = confidence - (predicted == labels)
out['ece'] = sum(abs(gap[bins == k].sum()) for k in set(bins)) / len(labels)
print(json.dumps(out))
