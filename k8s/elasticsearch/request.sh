#!/usr/bin/env bash
# Ask the Elasticsearch of k8s/elasticsearch something, as its superuser: request.sh METHOD PATH [BODY]
# Runs curl in Elasticsearch's own pod: no port is opened, and password and body are on no command line.
set -euo pipefail

namespace="${ELASTICSEARCH_NAMESPACE:-tlm}"
host="tlm-es-http.$namespace.svc:9200"
[ $# -ge 2 ] || { echo "usage: $0 METHOD PATH [BODY]" >&2; exit 2; }

quoted() {  # as curl reads a value in its configuration
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
  printf 'connect-to = "%s:127.0.0.1:9200"\n' "$host"  # the certificate is for the service's name
  printf 'cacert = "/usr/share/elasticsearch/config/http-certs/ca.crt"\n'
  printf 'user = %s\n' "$(quoted "elastic:$password")"
  if [ $# -gt 2 ]; then
    printf 'header = "Content-Type: application/json"\ndata-binary = %s\n' "$(quoted "$3")"
  fi
}

# Configured whole before curl starts: a secret that cannot be read must not become a request without a password.
text="$(configuration "$@")"
kubectl --namespace "$namespace" exec --stdin service/tlm-es-http --container elasticsearch -- \
  curl --config - <<< "$text"
