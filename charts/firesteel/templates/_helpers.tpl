{{/* Names and labels */}}
{{- define "firesteel.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "firesteel.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "firesteel.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "firesteel.selector" -}}
app.kubernetes.io/name: {{ include "firesteel.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "firesteel.labels" -}}
{{ include "firesteel.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "firesteel.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "firesteel.secretName" -}}
{{- .Values.secret.existingSecret | default (include "firesteel.fullname" .) -}}
{{- end -}}

{{/* Which workload a component of the JobManager is in: in application mode one pod has all three. */}}
{{- define "firesteel.coordinator" -}}
{{- if eq .root.Values.mode "application" -}}
{{- printf "%s-jobmanager" (include "firesteel.fullname" .root) -}}
{{- else -}}
{{- printf "%s-%s" (include "firesteel.fullname" .root) .component -}}
{{- end -}}
{{- end -}}

{{- define "firesteel.serviceAccountName" -}}
{{- $given := ternary .root.Values.serviceAccount.taskManagerName .root.Values.serviceAccount.jobManagerName (eq .component "taskmanager") -}}
{{- $ours := printf "%s-%s" (include "firesteel.fullname" .root) (ternary "taskmanager" "jobmanager" (eq .component "taskmanager")) -}}
{{- $given | default (ternary $ours "default" .root.Values.serviceAccount.create) -}}
{{- end -}}

{{/* A duration, size or number of config.yaml: Helm reads every number as a fraction. */}}
{{- define "firesteel.flatten" -}}
{{- $ := . -}}
{{- range $name, $value := .map -}}
{{- $key := ternary $name (printf "%s.%s" $.prefix $name) (eq $.prefix "") -}}
{{- if kindIs "map" $value -}}
{{- include "firesteel.flatten" (dict "map" $value "prefix" $key "into" $.into) -}}
{{- else if and (kindIs "float64" $value) (eq (floor $value) $value) -}}
{{- $_ := set $.into $key (int64 $value) -}}
{{- else -}}
{{- $_ := set $.into $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Mebibytes of a size as Flink writes it (1728m, 2 gb, 1073741824), rounded up. */}}
{{- define "firesteel.mebibytes" -}}
{{- $value := ternary (int64 (ternary .value 0 (kindIs "float64" .value))) .value (kindIs "float64" .value) -}}
{{- $text := toString $value | lower | nospace -}}
{{- $number := regexFind "^[0-9]+" $text -}}
{{- $unit := trimPrefix $number $text -}}
{{- $bytes := dict "" 1 "b" 1 "bytes" 1 "k" 1024 "kb" 1024 "kibibytes" 1024 "m" 1048576 "mb" 1048576 "mebibytes" 1048576 "g" 1073741824 "gb" 1073741824 "gibibytes" 1073741824 "t" 1099511627776 "tb" 1099511627776 "tebibytes" 1099511627776 -}}
{{- if or (eq $number "") (not (hasKey $bytes $unit)) -}}
{{- fail (printf "%s: %q is no size such as 1728m or 2g" .what (toString .value)) -}}
{{- end -}}
{{- div (add (mul (int64 $number) (get $bytes $unit)) 1048575) 1048576 -}}
{{- end -}}

{{/* All of config.yaml, as a flat map. */}}
{{- define "firesteel.config" -}}
{{- $full := include "firesteel.fullname" . -}}
{{- $v := .Values -}}
{{- $found := dict -}}
{{- $_ := set $found "jobmanager.bind-host" "0.0.0.0" -}}
{{- $_ := set $found "taskmanager.bind-host" "0.0.0.0" -}}
{{- $_ := set $found "rest.bind-address" "0.0.0.0" -}}
{{- $_ := set $found "rest.port" 8081 -}}
{{- $_ := set $found "rest.address" (printf "%s-rest" $full) -}}
{{- $_ := set $found "taskmanager.rpc.port" 6122 -}}
{{- $_ := set $found "taskmanager.numberOfTaskSlots" 2 -}}
{{- $_ := set $found "taskmanager.memory.process.size" "1728m" -}}
{{- $_ := set $found "firesteel.cluster.directory" "/var/lib/firesteel/cluster" -}}
{{- $_ := set $found "firesteel.run.directory" "/run/firesteel/run" -}}
{{- /* An archive of Java classes would go with the container that made it. */ -}}
{{- $_ := set $found "firesteel.jvm.archive-in-background" false -}}
{{- /* All processes of a container end with it. */ -}}
{{- $_ := set $found "firesteel.jobmaster.end-with-host" true -}}
{{- $_ := set $found "firesteel.security.secret-file" "/run/firesteel/secrets/cluster-secret" -}}
{{- if $v.rest.authentication -}}
{{- $_ := set $found "firesteel.rest.token-file" "/run/firesteel/secrets/rest-token" -}}
{{- else -}}
{{- $_ := set $found "firesteel.rest.allow-unauthenticated" true -}}
{{- end -}}
{{- if not (include "firesteel.leadersAnnounce" .) -}}
{{- $_ := set $found "jobmanager.rpc.address" (include "firesteel.coordinator" (dict "root" . "component" "dispatcher")) -}}
{{- $_ := set $found "firesteel.resourcemanager.address" (printf "%s:8082" (include "firesteel.coordinator" (dict "root" . "component" "resourcemanager"))) -}}
{{- $_ := set $found "firesteel.jobmaster.address" (printf "%s:6124" (include "firesteel.coordinator" (dict "root" . "component" "jobmaster"))) -}}
{{- end -}}
{{- if eq $v.mode "application" -}}
{{- /* The id of the job is made of it: two releases must not write to one folder of checkpoints. */ -}}
{{- $_ := set $found "high-availability.cluster-id" ($v.highAvailability.clusterId | default (printf "%s-%s" .Release.Namespace $full)) -}}
{{- end -}}
{{- with $v.highAvailability.type -}}
{{- $_ := set $found "high-availability.type" . -}}
{{- $_ := set $found "high-availability.cluster-id" ($v.highAvailability.clusterId | default $full) -}}
{{- if eq . "kubernetes" -}}
{{- $_ := set $found "kubernetes.cluster-id" ($v.highAvailability.clusterId | default $full) -}}
{{- $_ := set $found "kubernetes.namespace" $.Release.Namespace -}}
{{- end -}}
{{- with $v.highAvailability.storageDir -}}
{{- $_ := set $found "high-availability.storageDir" . -}}
{{- end -}}
{{- end -}}
{{- $names := list (printf "%s-rest" $full) (printf "%s-rest.%s" $full .Release.Namespace) (printf "%s-rest.%s.svc" $full .Release.Namespace) (printf "%s-rest.%s.svc.%s" $full .Release.Namespace $v.clusterDomain) -}}
{{- if $v.ingress.enabled -}}
{{- range $v.ingress.hosts -}}{{- $names = append $names .host -}}{{- end -}}
{{- end -}}
{{- $_ := set $found "firesteel.rest.host-names" (join ";" (concat $names $v.rest.hostNames | uniq)) -}}
{{- if $v.s3.existingSecret -}}
{{- $_ := set $found "firesteel.s3.credentials-file" (printf "/etc/firesteel/s3/%s" $v.s3.key) -}}
{{- end -}}
{{- if $v.monitoring.prometheus -}}
{{- $_ := set $found "metrics.reporters" "prom" -}}
{{- $_ := set $found "metrics.reporter.prom.factory.class" "prometheus" -}}
{{- end -}}
{{- if include "firesteel.native" . -}}
{{- $_ := set $found "firesteel.resourcemanager.driver" "kubernetes" -}}
{{- $_ := set $found "kubernetes.cluster-id" ($v.highAvailability.clusterId | default $full) -}}
{{- $_ := set $found "kubernetes.namespace" $.Release.Namespace -}}
{{- $_ := set $found "kubernetes.container.image.ref" (include "firesteel.image" .) -}}
{{- $_ := set $found "kubernetes.container.image.pull-policy" $v.image.pullPolicy -}}
{{- $_ := set $found "kubernetes.pod-template-file.taskmanager" "/etc/firesteel/conf/taskmanager-pod.yaml" -}}
{{- if not $v.taskManager.cpu.limit -}}
{{- $_ := set $found "kubernetes.taskmanager.cpu.limit-factor" "0" -}}
{{- end -}}
{{- with $v.taskManager.cpu.request -}}
{{- $_ := set $found "kubernetes.taskmanager.cpu.amount" (include "firesteel.cores" (dict "value" . "what" "taskManager.cpu.request")) -}}
{{- with $v.taskManager.cpu.limit -}}
{{- $limit := include "firesteel.cores" (dict "value" . "what" "taskManager.cpu.limit") | float64 -}}
{{- $request := include "firesteel.cores" (dict "value" $v.taskManager.cpu.request "what" "taskManager.cpu.request") | float64 -}}
{{- $_ := set $found "kubernetes.taskmanager.cpu.limit-factor" (toString (divf $limit $request)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $given := dict -}}
{{- include "firesteel.flatten" (dict "map" $v.config "prefix" "" "into" $given) -}}
{{- toYaml (merge $given $found) -}}
{{- end -}}

{{/* The ResourceManager makes TaskManagers when jobs need them. */}}
{{- define "firesteel.native" -}}
{{- if eq .Values.taskManager.kind "Native" -}}true{{- end -}}
{{- end -}}

{{/* Cores of a quantity of processors (2, 0.5, 500m). */}}
{{- define "firesteel.cores" -}}
{{- $text := toString .value -}}
{{- if not (regexMatch "^([0-9]+(\\.[0-9]+)?|[0-9]+m)$" $text) -}}
{{- fail (printf "%s: %q is no number of processors such as 2, 0.5 or 500m" .what $text) -}}
{{- end -}}
{{- if hasSuffix "m" $text -}}{{- divf (float64 (trimSuffix "m" $text)) 1000 -}}{{- else -}}{{- $text -}}{{- end -}}
{{- end -}}

{{- define "firesteel.leadersAnnounce" -}}
{{- if .Values.highAvailability.type -}}true{{- end -}}
{{- end -}}

{{/* What can't work is said before anything is made. */}}
{{- define "firesteel.check" -}}
{{- $v := .Values -}}
{{- $ha := $v.highAvailability.type -}}
{{- range $name := list "dispatcher" "resourceManager" "jobMaster" -}}
{{- if and (gt (int (get $v $name).replicas) 1) (not $ha) -}}
{{- fail (printf "%s.replicas: %d pods need high availability, one of them leads: set highAvailability.type, or 1 replica" $name (int (get $v $name).replicas)) -}}
{{- end -}}
{{- end -}}
{{- if and (has $ha (list "kubernetes" "zookeeper" "directory")) (not $v.highAvailability.storageDir) -}}
{{- fail (printf "highAvailability.type: %s keeps graphs, blobs and archives in highAvailability.storageDir, such as s3://bucket/ha: set it" $ha) -}}
{{- end -}}
{{- if and (eq $v.mode "application") (not $v.application.program) (not $v.application.module) -}}
{{- fail "mode: application needs application.program: a path in the image, s3://bucket/program.py, or the name of one of application.files" -}}
{{- end -}}
{{- if and $v.rest.service.nodePort (not (has $v.rest.service.type (list "NodePort" "LoadBalancer"))) -}}
{{- fail "rest.service.nodePort needs rest.service.type: NodePort or LoadBalancer" -}}
{{- end -}}
{{- if include "firesteel.native" . -}}
{{- range $name, $unset := dict "resources" (empty $v.taskManager.resources) "args" (empty $v.taskManager.args) "stateVolume.sizeLimit" (empty $v.taskManager.stateVolume.sizeLimit) "stateVolume.medium" (empty $v.taskManager.stateVolume.medium) -}}
{{- if not $unset -}}
{{- fail (printf "taskManager.%s is not for taskManager.kind: Native, whose pods the ResourceManager makes: `config` says it" $name) -}}
{{- end -}}
{{- end -}}
{{- if and $v.taskManager.cpu.limit (not $v.taskManager.cpu.request) -}}
{{- fail "taskManager.cpu.limit with taskManager.kind: Native needs taskManager.cpu.request: the limit is a multiple of it" -}}
{{- end -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) -}}
{{- fail "ingress.enabled needs ingress.hosts: the REST API answers only to names that it knows" -}}
{{- end -}}
{{- end -}}
