#!/bin/bash
# The first process of a node, in network, mount and pid namespaces of its own: whatever it starts ends with it.
# Its environment: FOLDER (of this node), SOCKETS, KUBELET, PROXY, CONTROL (the first node: where etcd and the control
# plane are started from; else empty), and what the lines below name.
mount --make-rshared /
for directory in /var/lib/kubelet /var/log/pods /var/log/containers /var/lib/cni "$SOCKETS" /run/netns; do
    own=$FOLDER/fs/${directory//\//_}
    mkdir -p "$own"
    mount --bind "$own" "$directory"
done
mount --make-rshared /var/lib/kubelet
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

if [ -n "$CONTROL" ]; then
    start etcd "$PROGRAMS/etcd" --data-dir "$CONTROL/etcd" --listen-client-urls http://127.0.0.1:2379 --unsafe-no-fsync \
        --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 --log-level warn
    start apiserver "$PROGRAMS/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --bind-address="$ADDRESS" \
        --advertise-address="$ADDRESS" --secure-port=6443 --cert-dir="$CONTROL/pki" --token-auth-file="$CONTROL/pki/tokens.csv" \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --profiling=false \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$CONTROL/pki/sa.key" \
        --service-account-signing-key-file="$CONTROL/pki/sa.key" --service-cluster-ip-range="$SERVICES" \
        --kubelet-client-certificate="$CONTROL/pki/kubelet-client.crt" \
        --kubelet-client-key="$CONTROL/pki/kubelet-client.key" --kubelet-preferred-address-types=InternalIP \
        --default-not-ready-toleration-seconds=5 --default-unreachable-toleration-seconds=5
    until [ -e "$CONTROL/api-is-ready" ]; do sleep 0.1; done
    start controller-manager "$PROGRAMS/kube-controller-manager" --kubeconfig="$CONTROL/kubeconfig/controller-manager" \
        --use-service-account-credentials=true --leader-elect=false --bind-address=127.0.0.1 --profiling=false \
        --service-account-private-key-file="$CONTROL/pki/sa.key" --root-ca-file="$CONTROL/pki/apiserver.crt" \
        --node-monitor-period=1s --node-monitor-grace-period=10s
    start scheduler "$PROGRAMS/kube-scheduler" --kubeconfig="$CONTROL/kubeconfig/scheduler" --leader-elect=false \
        --bind-address=127.0.0.1
fi
start containerd containerd -c "$FOLDER/containerd.toml"
until ctr -a "$SOCKETS/containerd.sock" version >/dev/null 2>&1; do sleep 0.1; done
ctr -a "$SOCKETS/containerd.sock" -n k8s.io images import "$PAUSE" >>log/images 2>&1
start kubelet "$PROGRAMS/kubelet" --config="$FOLDER/kubelet.yaml" --kubeconfig="$KUBELET" \
    --hostname-override="$NAME" --node-ip="$ADDRESS"
start proxy "$PROGRAMS/kube-proxy" --config="$FOLDER/proxy.yaml"
while :; do
    wait -n
    sleep 1
done
