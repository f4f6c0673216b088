{{/* The values of a kind of pod on top of those that all have. */}}
{{- define "firesteel.podValues" -}}
{{- $common := deepCopy .root.Values.pod -}}
{{- $own := deepCopy .values -}}
{{- $found := mergeOverwrite (deepCopy $common) $own -}}
{{- range $list := list "extraEnv" "extraVolumes" "extraVolumeMounts" -}}
{{- $_ := set $found $list (concat (get $common $list) (get $own $list | default list)) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Memory: request and limit are one number, what the processes of the pod may use. */}}
{{- define "firesteel.resources" -}}
{{- if .given -}}
{{- toYaml .given -}}
{{- else -}}
requests:
  {{- with .cpu.request }}
  cpu: {{ . | quote }}
  {{- end }}
  memory: {{ .memory }}Mi
limits:
  {{- with .cpu.limit }}
  cpu: {{ . | quote }}
  {{- end }}
  memory: {{ .memory }}Mi
{{- end -}}
{{- end -}}

{{/* A pod template: root, component, values, args, resources, volumes (of /var/lib/firesteel), restartPolicy */}}
{{- define "firesteel.generatedPod" -}}
{{- $v := include "firesteel.podValues" . | fromYaml -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "firesteel.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with $v.labels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    checksum/config: {{ include "firesteel.config" $root | sha256sum }}
    {{- if and (include "firesteel.native" $root) (ne .component "taskmanager") }}
    checksum/taskmanager: {{ include "firesteel.nativePod" $root | sha256sum }}
    {{- end }}
    {{- if .checksum }}
    checksum/more: {{ .checksum }}
    {{- end }}
    {{- with $v.annotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "firesteel.serviceAccountName" . }}
  automountServiceAccountToken: {{ or (eq $root.Values.highAvailability.type "kubernetes") (and (ne .component "taskmanager") (not (empty (include "firesteel.native" $root)))) }}
  enableServiceLinks: false
  shareProcessNamespace: true # the pod's first process takes care of those whose parents have ended
  terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
  {{- with .restartPolicy }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets: {{- range . }}
    - name: {{ . }}
  {{- end }}
  {{- end }}
  {{- with $v.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $root.Values.topologySpread.enabled }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: {{ $root.Values.topologySpread.topologyKey }}
      whenUnsatisfiable: {{ $root.Values.topologySpread.whenUnsatisfiable }}
      labelSelector:
        matchLabels:
          {{- include "firesteel.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ .component }}
  {{- end }}
  securityContext: {{- toYaml $v.securityContext | nindent 4 }}
  containers:
    - name: firesteel
      image: {{ include "firesteel.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      {{- $args := .args }}
      {{- if and (include "firesteel.leadersAnnounce" $root) (ne .component "taskmanager") }}
      {{- $args = concat (list (first $args) "--pid-file" "/run/firesteel/pid") (rest $args) }}
      {{- end }}
      args: {{- toYaml $args | nindent 8 }}
      env:
        - {name: FIRESTEEL_CONF_DIR, value: /etc/firesteel/conf}
        - {name: FIRESTEEL_GIVEN_SECRETS, value: /etc/firesteel/secrets}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        {{- if eq .component "taskmanager" }}
        - {name: FIRESTEEL_OPTION_TASKMANAGER_HOST, value: $(POD_IP)}
        {{- else if include "firesteel.leadersAnnounce" $root }}
        - {name: FIRESTEEL_OPTION_JOBMANAGER_RPC_ADDRESS, value: $(POD_IP)}
        {{- end }}
        {{- with $v.extraEnv }}{{ toYaml . | nindent 8 }}{{ end }}
      ports: {{- toYaml .ports | nindent 8 }}
      startupProbe:
        {{- include "firesteel.probe" (dict "pod" . "path" "health") | nindent 8 }}
        {{- toYaml $root.Values.probes.startup | nindent 8 }}
      readinessProbe:
        {{- include "firesteel.probe" (dict "pod" . "path" "ready") | nindent 8 }}
        {{- toYaml $root.Values.probes.readiness | nindent 8 }}
      livenessProbe:
        {{- include "firesteel.probe" (dict "pod" . "path" "health") | nindent 8 }}
        {{- toYaml $root.Values.probes.liveness | nindent 8 }}
      resources: {{- .resources | nindent 8 }}
      securityContext: {{- toYaml $v.containerSecurityContext | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/firesteel/conf, readOnly: true}
        - {name: secrets, mountPath: /etc/firesteel/secrets, readOnly: true}
        - {name: run, mountPath: /run/firesteel}
        - {name: temporary, mountPath: /tmp}
        - {name: home, mountPath: /home/firesteel}
        - {name: {{ .stateVolume }}, mountPath: /var/lib/firesteel}
        {{- if $root.Values.s3.existingSecret }}
        - {name: s3, mountPath: /etc/firesteel/s3, readOnly: true}
        {{- end }}
        {{- with .moreMounts }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- with $v.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - name: config
      configMap: {name: {{ include "firesteel.fullname" $root }}}
    - name: secrets
      secret:
        secretName: {{ include "firesteel.secretName" $root }}
        items:
          - {key: cluster-secret, path: cluster-secret}
          {{- if $root.Values.rest.authentication }}
          - {key: rest-token, path: rest-token}
          {{- end }}
        defaultMode: 0440
    - name: run
      emptyDir: {}
    - name: temporary
      emptyDir: {}
    - name: home
      emptyDir: {}
    {{- if $root.Values.s3.existingSecret }}
    - name: s3
      secret: {secretName: {{ $root.Values.s3.existingSecret }}, defaultMode: 0440}
    {{- end }}
    {{- with .moreVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- with $v.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end -}}

{{/* How a pod is asked. One that stands by has no port open yet, and is well. */}}
{{- define "firesteel.probe" -}}
{{- if and (include "firesteel.leadersAnnounce" .pod.root) (ne .pod.component "taskmanager") -}}
exec:
  command:
    - sh
    - -c
    - '[ "$(sed -n 3p /run/firesteel/pid)" = standby ] || exec python3 -I -S /opt/firesteel/probe.py http://127.0.0.1:{{ (first .pod.ports).containerPort }}/{{ .path }}'
{{- else -}}
httpGet: {path: /{{ .path }}, port: rpc}
{{- end -}}
{{- end -}}

{{/* The generated pod on top of the user's pod template. Containers of one name become one, others are added. */}}
{{- define "firesteel.pod" -}}
{{- $v := include "firesteel.podValues" . | fromYaml -}}
{{- $ours := include "firesteel.generatedPod" . | fromYaml -}}
{{- if $ours.Error -}}{{- fail (printf "the pod of %s: %s" .component $ours.Error) -}}{{- end -}}
{{- $theirs := $v.podTemplate | default dict -}}
{{- $theirSpec := $theirs.spec | default dict -}}
{{- $main := first $ours.spec.containers -}}
{{- $others := list -}}
{{- range $theirSpec.containers | default list -}}
{{- if eq .name $main.name -}}
{{- $env := concat (.env | default list) $main.env -}}
{{- $mounts := concat (.volumeMounts | default list) $main.volumeMounts -}}
{{- $main = mergeOverwrite (deepCopy .) $main (dict "env" $env "volumeMounts" $mounts) -}}
{{- else -}}
{{- $others = append $others . -}}
{{- end -}}
{{- end -}}
{{- $volumes := concat (get $ours.spec "volumes") ($theirSpec.volumes | default list) -}}
{{- $spec := mergeOverwrite (deepCopy $theirSpec) $ours.spec (dict "containers" (prepend $others $main) "volumes" $volumes) -}}
{{- $metadata := mergeOverwrite (deepCopy ($theirs.metadata | default dict)) $ours.metadata -}}
{{- toYaml (dict "metadata" $metadata "spec" $spec) -}}
{{- end -}}

{{/* TaskManagers that the ResourceManager makes: what it does not say of a pod by itself, as a pod template for it. */}}
{{- define "firesteel.nativePod" -}}
{{- $pod := include "firesteel.pod" (dict "root" . "component" "taskmanager" "values" .Values.taskManager "stateVolume" "state"
  "ports" (list (dict "name" "rpc" "containerPort" 6122)) "args" (list "taskmanager")
  "resources" (include "firesteel.resources" (dict "given" (dict "requests" dict)))) | fromYaml -}}
{{- $main := omit (first $pod.spec.containers) "image" "imagePullPolicy" "args" "ports" "resources" -}}
{{- $_ := set $main "name" "firesteel-main-container" -}}
{{- $env := list -}}
{{- range $main.env -}}
{{- if not (has .name (list "FIRESTEEL_CONF_DIR" "FIRESTEEL_GIVEN_SECRETS" "POD_IP" "FIRESTEEL_OPTION_TASKMANAGER_HOST")) -}}
{{- $env = append $env . -}}
{{- end -}}
{{- end -}}
{{- $mounts := list -}}
{{- range $main.volumeMounts -}}
{{- if not (has .name (list "config" "secrets" "run" "temporary" "home" "state")) -}}{{- $mounts = append $mounts . -}}{{- end -}}
{{- end -}}
{{- $volumes := list -}}
{{- range $pod.spec.volumes -}}
{{- if not (has .name (list "config" "secrets" "run" "temporary" "home")) -}}{{- $volumes = append $volumes . -}}{{- end -}}
{{- end -}}
{{- $_ := set $main "env" $env -}}
{{- $_ := set $main "volumeMounts" $mounts -}}
{{- $_ := set $pod.spec "containers" (prepend (rest $pod.spec.containers) $main) -}}
{{- $_ := set $pod.spec "volumes" $volumes -}}
{{- $_ := unset $pod.metadata.annotations "checksum/config" -}}
{{- toYaml (dict "apiVersion" "v1" "kind" "Pod" "metadata" $pod.metadata "spec" $pod.spec) -}}
{{- end -}}

{{/* A claim of a StatefulSet. */}}
{{- define "firesteel.claims" -}}
persistentVolumeClaimRetentionPolicy:
  whenDeleted: {{ ternary "Retain" "Delete" .retain }}
  whenScaled: Retain
volumeClaimTemplates:
  - metadata: {name: state}
    spec: {{- include "firesteel.claim" . | nindent 6 }}
{{- end -}}

{{- define "firesteel.claim" -}}
accessModes: {{ toJson .accessModes }}
resources: {requests: {storage: {{ .size }}}}
{{- if not (kindIs "invalid" .storageClassName) }}
storageClassName: {{ .storageClassName | quote }}
{{- end }}
{{- end -}}
