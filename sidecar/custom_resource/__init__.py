"""Groups that Kubernetes objects name: the resource `ConsumerGroupScaler`, and labelled workloads."""
