#!/bin/sh
# vllm-router (pip install vllm-router) in front of three replicas of espalier
# serve (docs/deploy.md):
#
#   espalier serve -m models/en-fr --port 8001   # 8002, 8003
#   deploy/vllm_router.sh
#
# Of two replicas drawn at random a request goes to the one with fewer rows
# (/get_load). With POLICY=consistent_hash requests with the same X-Session-ID
# go to the same replica, whose prefix cache then has what the session said
# before. Other arguments are the router's.
#
# A replica that drains answers 503 and has few rows, so that it is drawn again
# until a health check has seen it: retries go on for longer than that takes
# (0.25 s, and half as much again each time).
exec vllm-router --host 127.0.0.1 --port 8080 \
  --worker-urls \
  http://127.0.0.1:8001 \
  http://127.0.0.1:8002 \
  http://127.0.0.1:8003 \
  --policy "${POLICY:-power_of_two}" \
  --health-check-endpoint /ready \
  --health-check-interval-secs 1 \
  --health-failure-threshold 1 \
  --health-success-threshold 1 \
  --worker-startup-check-interval 1 \
  --retry-max-retries 5 \
  --retry-initial-backoff-ms 250 \
  --retry-backoff-multiplier 1.5 \
  "$@"
