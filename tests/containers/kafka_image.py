"""The image of the testing kit's broker: that of TRIMTAB_TEST_IMAGE, else one built from Kafka's JARs."""

import os
import shutil
from pathlib import Path
from typing import Any, Final

from containers.engine import base_image
from trimtab.cli.broker import broker_config
from trimtab.consumer_sdk.java.jars import fetch_jars
from trimtab.testing.kafka_broker import IMAGE_VARIABLE

SOURCE: Final = Path(__file__).with_name("kafka")
NAME: Final = "trimtab-test/kafka"


def provide_kafka_image(client: Any, folder: Path) -> str:
    """Return the name of an image that takes the settings of apache/kafka; builds one in `folder`."""
    given = os.environ.get(IMAGE_VARIABLE)
    if given:
        return given
    context = folder / "kafka-image"
    shutil.copytree(SOURCE, context)
    (context / "libs").mkdir()
    excluded = broker_config.EXCLUDED_COORDINATES
    for jar in fetch_jars("kafka", broker_config.KAFKA_COORDINATES, excludes=excluded):
        shutil.copy(jar, context / "libs")
    arguments = {"BASE": base_image(client)}
    client.images.build(path=str(context), buildargs=arguments, network_mode="host", rm=True, tag=NAME)
    return NAME
