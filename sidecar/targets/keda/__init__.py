"""The sidecar as an external scaler of KEDA: KEDA asks for a count, and has it brought about."""
