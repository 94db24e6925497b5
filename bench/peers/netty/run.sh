#!/usr/bin/env bash
# Becomes the Netty peer; bench/build.sh compiles it and puts this beside the other peers, as bench/bin/netty.
# Environment: PORT (8080), WORKERS (1), TRANSPORT (epoll, or io_uring).
# A heap that is never enlarged and the collector for one core; Netty's checks of buffers are off, as its guide has it.
set -euo pipefail
target=$(cd "$(dirname "$0")/../peers/netty" && pwd)/target
exec java -Xms512m -Xmx512m -XX:+UseSerialGC -Dio.netty.leakDetection.level=disabled \
  -Dio.netty.buffer.checkBounds=false -Dio.netty.buffer.checkAccessible=false \
  -cp "$target/classes:$target/lib/*" Server
