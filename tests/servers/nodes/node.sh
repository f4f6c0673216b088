#!/bin/bash
# The first process of a node, in network, mount and pid namespaces of its own: whatever it starts ends with it.
# Its environment: NAME, ADDRESS, FOLDER (what the node has), SOCKETS (a short path), PROGRAMS (of Kubernetes), KUBECONFIG (of
# the kubelet), PAUSE (an archive).
mount --make-rshared /
for directory in /var/lib/kubelet /var/log/pods /var/log/containers /var/lib/cni "$SOCKETS" /run/netns; do
    own=$FOLDER/fs/${directory//\//_}
    mkdir -p "$own"
    mount --bind "$own" "$directory"
done
mount --make-rshared /var/lib/kubelet
# Images are large and unpacked anew for each node: in memory that is quick, and gone with the node.
mkdir -p "$FOLDER/containerd"
mount -t tmpfs -o size=8g tmpfs "$FOLDER/containerd"
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
cd "$FOLDER" || exit 1

# Each program is started again when it ends, unless NAME.stop is there.
start() {
    local name=$1
    shift
    (
        while :; do
            if [ ! -e "$name.stop" ]; then
                "$@" >>"log/$name" 2>&1 &
                echo $! >"$name.pid"
                wait $!
                echo "$(date +%T) $name ended: $?" >>log/ended
            fi
            sleep 0.5
        done
    ) &
}

start containerd containerd -c "$FOLDER/containerd.toml"
until ctr -a "$SOCKETS/containerd.sock" version >/dev/null 2>&1; do sleep 0.1; done
ctr -a "$SOCKETS/containerd.sock" -n k8s.io images import "$PAUSE" >>log/images 2>&1
start kubelet "$PROGRAMS/kubelet" --config="$FOLDER/kubelet.yaml" --kubeconfig="$KUBECONFIG" \
    --hostname-override="$NAME" --node-ip="$ADDRESS"
start proxy "$PROGRAMS/kube-proxy" --config="$FOLDER/proxy.yaml"
while :; do
    wait -n
    sleep 1
done
