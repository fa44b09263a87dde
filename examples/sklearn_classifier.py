"""Batch selection behind scikit-learn's fit and predict.

python examples/sklearn_classifier.py
"""

from __future__ import annotations

from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import average_precision_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from d2ace.integrations.sklearn import MultiLabelClassifier

X, Y = make_multilabel_classification(n_samples=600, n_classes=8, n_labels=3, random_state=0)
X_train, X_test, Y_train, Y_test = train_test_split(X, Y, random_state=0)

for selector in ("random", "d2ace"):
    classifier = MultiLabelClassifier(
        model="mlp",
        selector=selector,
        epochs=30,
        warmup=5,
        batch_size=64,
        learning_rate=5e-3,
        early_stopping=True,
        device="cpu",
        random_state=0,
    )
    pipeline = make_pipeline(MinMaxScaler(), classifier)  # networks need features of similar size
    pipeline.fit(X_train, Y_train)
    score = average_precision_score(Y_test, pipeline.predict_proba(X_test), average="macro")
    print(f"{selector:8s} mAP {score:.3f} with the weights of epoch {classifier.best_iter_}")
