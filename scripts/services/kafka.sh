#!/usr/bin/env bash
# kafka.sh COMMAND: a private Kafka broker (KRaft, one node) for tests, on loopback, its data under target/services.
#
#   install            only installs what start would.
#   start              installs what is missing (apt, as root: Java and Maven; from Maven Central: Kafka 4.3.1), starts the
#                      broker, waits until it serves, and prints its address. If a broker already answers on the port,
#                      that one is used.
#   run                the same in the foreground: this process becomes the broker, and nothing is printed. For tests whose
#                      broker has to end with them.
#   stop               stops the broker that start or run started; its data stays.
#   kill               the same with kill -9.
#   clean              kill, and its data is removed.
#   url                prints the address, host:port.
#   pid                prints the broker's process number, if it runs.
#   topic NAME [N] [KEY=VALUE…]   creates a topic with N partitions (1) if it is missing.
#   consume TOPIC N    writes the first N messages of a topic: partition, offset, headers and value, with tabs between.
#   tool CLASS ARGS…   one of Kafka's own commands, such as org.apache.kafka.tools.ProducerPerformance.
#
# With HW_KAFKA_JOIN=PORT it joins the cluster of the broker on that port, which must run and is its controller;
# HW_KAFKA_NODE (2) is its number. A topic gets HW_KAFKA_REPLICAS (1) copies.
#
# Settings: HW_KAFKA_PORT (29092), HW_KAFKA_CONTROLLER_PORT (HW_KAFKA_PORT + 1), HW_SERVICES_DIR (target/services in this
# repository), HW_KAFKA_HEAP (384m), HW_KAFKA_JAVA (flags for the broker's Java), HW_KAFKA_CONFIG (lines for its
# server.properties). Brokers on different ports run beside each other; each has a folder of its own.
# Topics are not created by producing to them. Writes are not synced: this broker is for tests that kill processes, not
# machines.
set -euo pipefail

# shellcheck source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
here=$root/scripts/services/kafka
port=${HW_KAFKA_PORT:-29092}
controller=${HW_KAFKA_CONTROLLER_PORT:-$((port + 1))}
libraries=$services/kafka-4.3.1
# What every start needs, made by the first one.
prepared=$services/kafka-prepared
dir=$services/kafka-$port
url=127.0.0.1:$port
join=${HW_KAFKA_JOIN:-}
java=${JAVA_HOME:+$JAVA_HOME/bin/}java

install_packages() {
  local missing=()
  command -v "$java" >/dev/null || missing+=(default-jre-headless)
  command -v mvn >/dev/null || [ -f "$libraries/.complete" ] || missing+=(maven)
  [ "${#missing[@]}" != 0 ] || return 0
  command -v apt-get >/dev/null || fail "Kafka needs ${missing[*]}, and there is no apt-get; install Java 17 or later, and Maven"
  [ "$(id -u)" = 0 ] || fail "Kafka needs ${missing[*]}, and we are not root; install with: sudo apt-get install ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >&2 ||
    fail "apt-get could not install ${missing[*]}; is there a network?"
}

# Kafka is its artifacts from Maven Central; their checksums are verified by Maven.
install_kafka() {
  [ ! -f "$libraries/.complete" ] || return 0
  local log=$libraries.log
  # Downloads break off often enough to be retried.
  for _ in 1 2 3; do
    mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
      -DoutputDirectory="$libraries" >"$log" 2>&1 </dev/null && touch "$libraries/.complete" && return 0
  done
  fail "Maven could not get Kafka: $(tail -5 "$log")"
}

# One installation serves the brokers of all ports; concurrent starts wait for the first.
install() {
  mkdir -p "$services"
  exec 8>"$services/kafka-install.lock"
  flock 8
  install_packages
  install_kafka
  [ -d "$prepared" ] || (dir=$prepared.new && make_prepared) 8>&- || mkdir -p "$prepared"
  exec 8>&-
}

# To format a folder and to start a broker take 6 seconds of computing, and 2.5 with a formatted folder to copy and an archive of
# the classes that a broker loads: it writes that when it ends. A broker starts without them as well, so where this fails, as on a
# port that is taken, it is not tried again.
make_prepared() {
  rm -rf "$dir"
  mkdir -p "$dir"
  ! is_open || return 1
  configure
  format || return 1
  cp -r "$dir/data" "$dir/formatted"
  command_of_broker "-XX:ArchiveClassesAtExit=$dir/classes.jsa"
  "${broker[@]}" >"$dir/log" 2>&1 </dev/null 9>&- &
  for _ in {1..600}; do
    ! grep -q 'Kafka Server started' "$dir/log" || break
    kill -0 $! 2>/dev/null || return 1
    sleep 0.1
  done
  kill -TERM $! && wait $! || true
  rm -rf "$dir/data"
  [ -f "$dir/classes.jsa" ] && mv "$dir" "$prepared"
}

# Sets `archive`: the flag for the archive of classes, if there is one.
find_archive() {
  archive=()
  [ ! -f "$prepared/classes.jsa" ] || archive=("-XX:SharedArchiveFile=$prepared/classes.jsa")
}

# Kafka's commands run briefly: only Java's first compiler pays off.
tool() {
  find_archive
  "$java" -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData "${archive[@]}" -Dhighwater.log=WARN \
    -Dlog4j2.configurationFile="$here/log4j2.properties" -cp "$libraries/*" "$@"
}

# What differs between the broker that is the controller as well, and one that joins it.
roles() {
  if [ -n "$join" ]; then
    cat <<CONF
process.roles=broker
node.id=${HW_KAFKA_NODE:-2}
controller.quorum.voters=1@127.0.0.1:$((join + 1))
listeners=PLAINTEXT://$url
CONF
  else
    cat <<CONF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://$url,CONTROLLER://127.0.0.1:$controller
CONF
  fi
}

configure() {
  roles >"$dir/server.properties"
  cat >>"$dir/server.properties" <<CONF
advertised.listeners=PLAINTEXT://$url
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$dir/data
auto.create.topics.enable=false
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
background.threads=2
log.cleaner.dedupe.buffer.size=16777216
# A broker that was killed may register again when its session has ended, not before.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# Tests write records with old timestamps: nothing is deleted for its age.
log.retention.ms=-1
# A removed topic is deleted at once.
log.segment.delete.delay.ms=1000
# Segments' indexes are preallocated: 10 MiB each by default, for every partition.
log.index.size.max.bytes=1048576
${HW_KAFKA_CONFIG:-}
CONF
}

# An identifier as Kafka writes them. It must not begin with "-": the tool would take it for a flag.
new_id() {
  local id
  id=$(head -c 16 /dev/urandom | base64 | tr '+/' '-_')
  echo "A${id:1:21}"
}

format() {
  [ ! -f "$dir/data/meta.properties" ] || return 0
  local id
  if [ -n "$join" ]; then
    id=$(sed -n 's/^cluster.id=//p' "$services/kafka-$join/data/meta.properties") ||
      fail "there is no broker on port $join to join"
  else
    id=$(new_id)
  fi
  if [ -z "$join" ] && [ -d "$prepared/formatted" ]; then
    cp -r "$prepared/formatted" "$dir/data"
    printf '%s\n' version=1 node.id=1 "cluster.id=$id" "directory.id=$(new_id)" >"$dir/data/meta.properties"
    return 0
  fi
  tool kafka.tools.StorageTool format -t "$id" -c "$dir/server.properties" >"$dir/format.log" 2>&1 ||
    fail "the data folder could not be made: $(tail -5 "$dir/format.log")"
}

prepare() {
  install
  mkdir -p "$dir"
  configure
  format
  find_archive
  command_of_broker "${archive[@]}"
}

# command_of_broker FLAGS…: sets `broker`, with these flags for Java.
command_of_broker() {
  local heap=${HW_KAFKA_HEAP:-384m}
  # shellcheck disable=SC2206  # flags, with spaces between
  broker=("$java" -Xms"$heap" -Xmx"$heap" -XX:+UseSerialGC -XX:MaxDirectMemorySize=128m -XX:ReservedCodeCacheSize=64m
    -XX:-UsePerfData -Xshare:auto -Djava.awt.headless=true -Dlog4j2.configurationFile="$here/log4j2.properties"
    "$@" ${HW_KAFKA_JAVA:-} -cp "$libraries/*" kafka.Kafka "$dir/server.properties")
}

# Whether a Kafka broker serves on the port: an ApiVersions request (version 0, number 7) must be answered with that
# number.
is_serving() {
  local answer
  answer=$( (exec 3<>"/dev/tcp/127.0.0.1/$port" && printf '\0\0\0\012\0\022\0\0\0\0\0\007\377\377' >&3 &&
    timeout 5 head -c 8 <&3 | tail -c 4 | od -An -tx1) 2>/dev/null) || return 1
  [ "${answer// /}" = 00000007 ]
}

running() {
  running_with -F "kafka.Kafka $dir/server.properties"
}

start() {
  if ! is_serving; then
    running >/dev/null || launch
    local pid
    for _ in $(seq 1200); do
      pid=$(running) || fail "the broker ended: $(grep -E 'ERROR|FATAL|Exception' "$dir/log" | head -5)"
      # It answers before it serves its partitions; the line is printed after that.
      grep -q 'Kafka Server started' "$dir/log" && is_serving && echo "$url" && return 0
      sleep 0.1
    done
    fail "the broker (process $pid) is not ready after two minutes; see $dir/log"
  fi
  echo "$url"
}

launch() {
  refuse_taken_port HW_KAFKA_PORT
  prepare
  # A separate session: it outlives the test program that started it.
  setsid "${broker[@]}" >"$dir/log" 2>&1 </dev/null 9>&- &
  echo $! >"$dir/pid"
}

run() {
  prepare
  echo $$ >"$dir/pid"
  exec "${broker[@]}" >"$dir/log" 2>&1 </dev/null
}

stop() {
  local pid
  pid=$(running) || return 0
  kill -TERM "$pid" 2>/dev/null || return 0
  gone "$pid" 300 || kill_broker
}

kill_broker() {
  local pid
  pid=$(running) || return 0
  kill -KILL "$pid" 2>/dev/null || return 0
  gone "$pid" 100 || fail "process $pid does not end"
}

topic() {
  local name=$1 partitions=${2:-1} options=() option
  for option in "${@:3}"; do options+=(--config "$option"); done
  tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$url" --create --if-not-exists --topic "$name" \
    --partitions "$partitions" --replication-factor "${HW_KAFKA_REPLICAS:-1}" "${options[@]}"
}

consume() {
  tool org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$url" --topic "$1" --from-beginning \
    --max-messages "$2" --timeout-ms 20000 --formatter-property print.partition=true \
    --formatter-property print.offset=true --formatter-property print.headers=true
}

case "${1:-}" in
  install) install ;;
  start) lock "$services/kafka-$port.lock" && start 9>&- ;;
  run) run ;;
  stop) stop ;;
  kill) kill_broker ;;
  clean) kill_broker && rm -rf "$dir" ;;
  url) echo "$url" ;;
  pid) running ;;
  topic) topic "${@:2}" ;;
  consume) consume "${@:2}" ;;
  tool) tool "${@:2}" ;;
  *) fail "usage: kafka.sh install|start|run|stop|kill|clean|url|pid|topic NAME [N] [KEY=VALUE…]|consume TOPIC N|tool CLASS ARGS…" ;;
esac
