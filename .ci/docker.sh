# For .ci/run: install Docker if needed, then build a base image and ours. Needs as_root and apt_install.
# shellcheck shell=bash

BASE_SUITE=trixie  # Python 3.13, as on the default base image

# install_docker: make sure a Docker daemon runs; one that we start ends with this script
install_docker() {
    docker info > /dev/null 2>&1 && return
    command -v dockerd > /dev/null || apt_install docker.io
    mkdir -p build
    # shellcheck disable=SC2024  # the log is ours
    case "$(id -u)" in  # not as_root: we must be able to kill the process
        0) dockerd > build/dockerd.log 2>&1 < /dev/null & ;;
        *) sudo -n dockerd --group "$(id -gn)" > build/dockerd.log 2>&1 < /dev/null & ;;
    esac
    daemon=$!
    trap 'kill "$daemon" 2> /dev/null' EXIT
    for _ in $(seq 60); do
        docker info > /dev/null 2>&1 && return
        sleep 1
    done
    tail -n 5 build/dockerd.log >&2
    return 1
}

# install_builder: install what `make images` needs
install_builder() {
    DOCKER_BUILDKIT=1 docker build --help 2> /dev/null | grep -q -e --secret ||
        DOCKER_BUILDKIT=1 /usr/bin/docker build --help 2> /dev/null | grep -q -e --secret ||
        apt_install docker-buildx docker-buildx-plugin
    command -v debootstrap > /dev/null || can_pull || apt_install debootstrap
}

default_base() { sed -n 's/^ARG BASE_IMAGE=//p' docker/Dockerfile; }

can_pull() { timeout 300 docker pull --quiet "$(default_base)" > /dev/null 2>&1; }

# build_images: build the images on the Dockerfile's base image, or on Debian's Python if it cannot be pulled
build_images() {
    if can_pull; then
        make images
    else
        local base="tlm-base:$BASE_SUITE"
        docker image inspect "$base" > /dev/null 2>&1 || make_base "$base" || return 1
        make images BASE_IMAGE="$base"
    fi && remove_old_builds
}

# remove_old_builds: free the disk of images of other commits, and of the build cache beyond one build of all images
remove_old_builds() {
    docker images --format '{{.Repository}}:{{.Tag}}' --filter 'reference=*/*/tlm-*' |
        grep -v -e "-$(git describe --always --dirty --exclude '*')\$" | xargs --no-run-if-empty docker rmi > /dev/null
    docker builder prune --force --keep-storage 8GB > /dev/null 2>&1
    docker image prune --force > /dev/null
}

make_base() {
    local folder
    folder="$(mktemp -d)"
    as_root debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv "$BASE_SUITE" "$folder/root" \
        ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} &&
        as_root rm -rf "$folder"/root/var/cache/apt/archives "$folder"/root/var/lib/apt/lists \
            "$folder"/root/usr/share/man "$folder"/root/usr/share/locale &&  # as python:*-slim does
        as_root tar --create --directory "$folder/root" . | docker import - "$1"
    local status=$?
    as_root rm -rf "$folder"
    return "$status"
}
