"""Batch selection in other frameworks; import the module of the one that you use.

- ``d2ace.integrations.sklearn``: ``MultiLabelClassifier``, an estimator with fit and predict.
- ``d2ace.integrations.lightning``: ``SelectionCallback``, for Lightning's Trainer.
- ``d2ace.integrations.transformers``: ``SelectionTrainer``, for Hugging Face's Trainer.
- ``d2ace.selectors.distributed``: ``DistributedSelector``, one selector for several processes.
"""
