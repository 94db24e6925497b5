#!/usr/bin/env bash
# proxied.sh PROXY INSTANCES PORT METRICS [FLAG...]: highwater-arena behind a proxy, for bench/plans/proxy.toml.
#
# PROXY is nginx or haproxy, as deploy/ has them; nginx-closed and haproxy-closed open a connection for each request;
# nginx-plain does, too, and has no other setting (HTTP/1.0, an instance that fails is left out). The proxy listens on
# 127.0.0.1:PORT. The INSTANCES, one worker each, listen on the same port of 127.0.0.3 and 127.0.0.4, and have their metrics
# on port METRICS of 127.0.0.1 and 127.0.0.4. The FLAGs are theirs.
#
# The instances run where this script runs, the proxy on the CPUs of HW_PROXY_CPUS, if that is set. With HW_BUSY=true, another
# process computes where the instances run, and never sleeps. All of them end with this script.
set -euo pipefail
cd "$(dirname "$0")/.."
proxy=$1 instances=$2 port=$3 metrics=$4
shift 4
export HW_NGINX_PORT=$port HW_HAPROXY_PORT=$port HW_SERVICES_DIR=$PWD/target/bench/services
children=()
stop() {
  trap - EXIT TERM INT
  "scripts/services/${proxy%%-*}.sh" stop || true
  kill "${children[@]}" 2>/dev/null || true
  wait
}
trap stop EXIT
trap 'stop; exit' TERM INT

upstreams=()
for n in $(seq "$instances"); do
  page=127.0.0.1
  [ "$n" = 1 ] || page=127.0.0.4
  highwater-arena --listen "127.0.0.$((n + 2)):$port" --metrics "$page:$metrics" --workers 1 --pin off --log off "$@" &
  children+=($!)
  if [[ $proxy == haproxy* ]]; then upstreams+=("127.0.0.$((n + 2)):$port,$page:$metrics"); else upstreams+=("127.0.0.$((n + 2)):$port"); fi
done
if [ "${HW_BUSY:-}" = true ]; then
  # If this script is killed, it stops by itself.
  timeout 1h sh -c 'while :; do :; done' &
  children+=($!)
fi
case $proxy in
  nginx-closed) export HW_NGINX_KEEP=off ;;
  nginx-plain) export HW_NGINX_KEEP=plain ;;
  haproxy-closed) export HW_HAPROXY_KEEP=off ;;
esac
${HW_PROXY_CPUS:+taskset -c "$HW_PROXY_CPUS"} "scripts/services/${proxy%%-*}.sh" start "${upstreams[@]}" >/dev/null
wait "${children[@]:0:instances}"
