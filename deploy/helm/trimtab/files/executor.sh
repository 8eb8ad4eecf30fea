cd "$(mktemp -d)" # for the JARs that the driver sends
env | sed -n '/^SPARK_JAVA_OPT_/{s/^[^=]*=//;s/[\\"]/\\&/g;s/.*/"&"/p;}' >java-options
spark=$(python3 -c 'from importlib.util import find_spec; print(*find_spec("pyspark").submodule_search_locations)')
exec java @java-options -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" -cp "$spark/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
