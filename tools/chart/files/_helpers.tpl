{{- define "wmco.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default (printf "v%s" $.Chart.AppVersion) }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "wmco.monitoring" -}}
{{- $on := .Values.monitoring.enabled -}}
{{- if or (eq (toString $on) "true") (and (eq (toString $on) "auto") (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}yes{{ end -}}
{{- end -}}

{{- define "wmco.clusterAPI" -}}
{{- $on := .Values.clusterAPI.enabled -}}
{{- if or (eq (toString $on) "true") (and (eq (toString $on) "auto") (lookup "v1" "Namespace" "" "openshift-cluster-api")) }}yes{{ end -}}
{{- end -}}

{{- define "wmco.machineAPI" -}}
{{- $on := .Values.machineAPI.enabled -}}
{{- if or (eq (toString $on) "true") (and (eq (toString $on) "auto") (lookup "v1" "Namespace" "" "openshift-machine-api")) }}yes{{ end -}}
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

{{- define "wmco.flannel" -}}
{{- $on := .Values.flannel.enabled -}}
{{- if or (eq (toString $on) "true") (and (eq (toString $on) "auto") (lookup "v1" "Namespace" "" "kube-flannel")) }}yes{{ end -}}
{{- end -}}
