{{- define "wmco.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default (printf "v%s" $.Chart.AppVersion) }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "wmco.monitoring" -}}
{{- $on := toString .Values.monitoring.enabled -}}
{{- $known := or (include "wmco.openshift" .) .Values.monitoring.namespace -}}
{{- if or (eq $on "true") (and (eq $on "auto") (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") $known) }}yes{{ end -}}
{{- end -}}

{{- define "wmco.prometheusNamespace" -}}
{{- if .Values.monitoring.namespace }}{{ .Values.monitoring.namespace }}
{{- else if include "wmco.openshift" . }}openshift-monitoring
{{- else }}{{ fail "set monitoring.namespace to the namespace of the Prometheus that is to read the metrics: without OpenShift the chart does not know it" }}
{{- end -}}
{{- end -}}

{{- define "wmco.kubeletCA" -}}
{{- if .Values.monitoring.caFile }}{{ .Values.monitoring.caFile }}
{{- else if include "wmco.openshift" . }}/etc/prometheus/configmaps/kubelet-serving-ca-bundle/ca-bundle.crt
{{- else }}/var/run/secrets/kubernetes.io/serviceaccount/ca.crt
{{- end -}}
{{- end -}}

{{- define "wmco.workloadGuard" -}}
{{- $on := .Values.workloadGuard.enabled -}}
{{- if or (eq (toString $on) "true") (and (eq (toString $on) "auto") (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")) }}yes{{ end -}}
{{- end -}}

{{- define "wmco.openshift" -}}
{{- $is := .Values.cluster -}}
{{- $offline := not (lookup "v1" "Namespace" "" "kube-system") -}}
{{- $infrastructure := and (.Capabilities.APIVersions.Has "config.openshift.io/v1/Infrastructure") (lookup "config.openshift.io/v1" "Infrastructure" "" "cluster") -}}
{{- if or (eq $is "openshift") (and (eq $is "auto") (or $offline $infrastructure)) }}yes{{ end -}}
{{- end -}}

{{- /* wmco.wanted is of a value and of a namespace: auto is where the cluster has that. */ -}}
{{- define "wmco.wanted" -}}
{{- $on := toString (index . 0) -}}
{{- if or (eq $on "true") (and (eq $on "auto") (lookup "v1" "Namespace" "" (index . 1))) }}yes{{ end -}}
{{- end -}}
