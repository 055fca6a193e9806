{{- define "fieldfare.labels" -}}
{ app.kubernetes.io/name: fieldfare, app.kubernetes.io/instance: {{ .root.Release.Name }}, app.kubernetes.io/component: {{ .component }}{{ with .node }}, fieldfare/node: {{ . }}{{ end }} }
{{- end }}

{{- define "fieldfare.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* A pod with the least rights. Its group is set once, on an empty volume: noise keys have mode 0600, and a
coordinator refuses a key that a group can read. */ -}}
{{- define "fieldfare.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .user | default 49999 }}
  runAsGroup: {{ .user | default 49999 }}
  fsGroup: {{ .user | default 49999 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "fieldfare.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{- /* For services without state. */ -}}
{{- define "fieldfare.scratch" -}}
- { name: FLWR_HOME, value: /tmp/flwr }
- { name: FIELDFARE_HOME, value: /tmp/runs }
- { name: FIELDFARE_CACHE, value: /tmp/cache }
{{- end }}

{{- define "fieldfare.ledgerFile" -}}
- { name: FIELDFARE_LEDGER_FILE, value: /secrets/ledger.url }
{{- end }}

{{- define "fieldfare.claim" -}}
volumeClaimTemplates:
  - metadata: { name: state }
    spec:
      accessModes: [ReadWriteOnce]
      resources: { requests: { storage: {{ . }} } }
{{- end }}

{{/* A claim of its own for a Deployment that keeps the journal's head: it refuses an older ledger after its restart too.
node: the name of the node, where it is one's. */}}
{{- define "fieldfare.headClaim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .component }}{{ with .node }}-{{ . }}{{ end }}
  labels: {{ include "fieldfare.labels" . }}
spec:
  accessModes: [ReadWriteOnce]
  resources: { requests: { storage: {{ .storage | default .root.Values.heads.storage }} } }
{{- end }}

{{- define "fieldfare.writer" -}}
- { name: FLWR_HOME, value: /tmp/flwr }
- { name: FIELDFARE_HOME, value: /state/runs }
- { name: FIELDFARE_CACHE, value: /tmp/cache }
{{- end }}
