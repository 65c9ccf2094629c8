#!/usr/bin/env bash
# Send a request to the Elasticsearch of k8s/elasticsearch, as its superuser: request.sh METHOD PATH [BODY]
# curl runs in Elasticsearch's own pod: no port is opened, and neither password nor body is on a command line.
set -euo pipefail

namespace="${ELASTICSEARCH_NAMESPACE:-tlm}"
host="tlm-es-http.$namespace.svc:9200"
[ $# -ge 2 ] || { echo "usage: $0 METHOD PATH [BODY]" >&2; exit 2; }

quoted() {  # a value in curl's configuration syntax
  local value="${1//\\/\\\\}"
  value="${value//$'\n'/\\n}"
  printf '"%s"' "${value//\"/\\\"}"
}

configuration() {
  local password
  password="$(kubectl --namespace "$namespace" get secret tlm-es-elastic-user \
    --output go-template='{{.data.elastic | base64decode}}')"
  printf '%s\n' silent show-error fail-with-body max-time=60
  printf 'request = %s\n' "$(quoted "$1")"
  printf 'url = %s\n' "$(quoted "https://$host$2")"
  printf 'connect-to = "%s:127.0.0.1:9200"\n' "$host"  # the certificate is issued for the service name
  printf 'cacert = "/usr/share/elasticsearch/config/http-certs/ca.crt"\n'
  printf 'user = %s\n' "$(quoted "elastic:$password")"
  if [ $# -gt 2 ]; then
    printf 'header = "Content-Type: application/json"\ndata-binary = %s\n' "$(quoted "$3")"
  fi
}

# Build the whole configuration before curl starts: if the secret cannot be read, no request may go out without it.
text="$(configuration "$@")"
kubectl --namespace "$namespace" exec --stdin service/tlm-es-http --container elasticsearch -- \
  curl --config - <<< "$text"
