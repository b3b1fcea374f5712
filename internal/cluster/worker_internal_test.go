package cluster

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/test/clustertest"
)

func TestTheKubeletUnitsCommandIsReadAsSystemdReadsIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		unit string
		want string
		bad  bool
	}{
		"an external provider": {
			unit: "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=external --v=2\n", want: "external"},
		"continued lines": {unit: "[Service]\nExecStart=/usr/bin/kubelet \\\n   " +
			"--cloud-provider=external \\\n  --v=2\n", want: "external"},
		"a comment within": {unit: "[Service]\nExecStart=/usr/bin/kubelet \\\n# why\n ; and how\n " +
			"--cloud-provider=external\n", want: "external"},
		"the value as the next word": {unit: "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider external\n",
			want: "external"},
		"one hyphen": {unit: "[Service]\nExecStart=/usr/bin/kubelet -cloud-provider=external\n",
			want: "external"},
		"quotes": {unit: "[Service]\nExecStart=/usr/bin/kubelet " +
			"\"--cloud-provider=external\" --x='a b'\n", want: "external"},
		"the last one wins": {unit: "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=aws " +
			"--cloud-provider=external\n", want: "external"},
		"a later ExecStart wins": {unit: "[Service]\nExecStart=/usr/bin/kubelet " +
			"--cloud-provider=aws\nExecStart=\nExecStart=/usr/bin/kubelet --cloud-provider=external\n",
			want: "external"},
		"carriage returns": {unit: "[Service]\r\nExecStart=/usr/bin/kubelet \\\r\n " +
			"--cloud-provider=external\r\n", want: "external"},
		"an empty value":             {unit: "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=\n"},
		"no such flag":               {unit: "[Service]\nExecStart=/usr/bin/kubelet --v=2\n"},
		"a flag that only starts so": {unit: "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider-x=external\n"},
		"in a value":                 {unit: "[Service]\nExecStart=/usr/bin/kubelet --x=--cloud-provider=external\n"},
		"in another section": {unit: "[Unit]\nExecStart=/usr/bin/kubelet " +
			"--cloud-provider=aws\n[Service]\nExecStart=/usr/bin/kubelet\n"},
		"in ExecStartPre": {unit: "[Service]\nExecStartPre=/bin/x " +
			"--cloud-provider=aws\nExecStart=/usr/bin/kubelet\n"},
		"a variable is refused": {unit: "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=${P}\n",
			bad: true},
		"an in-tree provider is refused": {unit: "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=aws\n", bad: true},
		"no ExecStart is refused":        {unit: "[Service]\nType=notify\n", bad: true},
		"an emptied one is refused":      {unit: "[Service]\nExecStart=/usr/bin/kubelet\nExecStart=\n", bad: true},
		"an ending backslash is fine": {unit: "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=external \\",
			want: "external"},
		"a flag at the very end":      {unit: "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider\n"},
		"a flag instead of its value": {unit: "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider --v=2\n"},
		"an escaped quote in a word": {unit: "[Service]\nExecStart=/usr/bin/kubelet --x=\\\" " +
			"--cloud-provider=external\n", want: "external"},
		"a tab between words": {unit: "[Service]\nExecStart=/usr/bin/kubelet\t--cloud-provider=external\n",
			want: "external"},
		"white space around the equal": {unit: "[Service]\nExecStart = /usr/bin/kubelet --cloud-provider=external\n",
			want: "external"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := cloudProvider(ignition{Systemd: systemd(test.unit)})
			if got != test.want || (err != nil) != test.bad {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func systemd(unit string, dropins ...struct{ Name, Contents string }) (s struct{ Units []ignitionUnit }) {
	s.Units = []ignitionUnit{{Name: "crio.service", Contents: "x"},
		{Name: kubeletUnit, Contents: unit, Dropins: dropins}}
	return s
}

func TestDropInsComeAfterTheUnitInTheOrderOfTheirNames(t *testing.T) {
	t.Parallel()
	got, err := cloudProvider(ignition{Systemd: systemd("[Service]\nExecStart=/usr/bin/kubelet",
		struct{ Name, Contents string }{Name: "20-b.conf", Contents: "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet " +
			"--cloud-provider=external"},
		struct{ Name, Contents string }{Name: "10-a.conf", Contents: "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet " +
			"--cloud-provider=aws"},
	)})
	if err != nil || got != "external" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFilesOfIgnitionAreDecoded(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(clustertest.CredentialProvider)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	encoded := base64.StdEncoding.EncodeToString
	for name, test := range map[string]struct {
		source, compression string
		bad                 bool
	}{
		"escaped": {source: "data:," + url.PathEscape(clustertest.CredentialProvider)},
		"base64": {source: "data:text/plain;charset=utf-8;base64," +
			encoded([]byte(clustertest.CredentialProvider))},
		"base64 and gzip":           {source: "data:;base64," + encoded(zipped.Bytes()), compression: "gzip"},
		"from elsewhere is refused": {source: "https://example.com/x", bad: true},
		"not gzip is refused":       {source: "data:,x", compression: "gzip", bad: true},
		"another compression is":    {source: "data:,x", compression: "zstd", bad: true},
		"not base64 is":             {source: "data:;base64,%%%", bad: true},
		"no comma is":               {source: "data:text/plain", bad: true},
		"another kind is":           {source: "data:," + url.PathEscape("apiVersion: v1\nkind: Secret\n"), bad: true},
		"no providers are": {source: "data:," +
			url.PathEscape("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n"), bad: true},
		"a path as a program is": {source: "data:," +
			url.PathEscape(strings.ReplaceAll(clustertest.CredentialProvider, "ecr-credential-provider", `..\x`)),
			bad: true},
		"an empty file is":           {source: "", bad: true},
		"a list where a map must be": {source: "data:,%5B%5D", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var config ignition
			f := ignitionFile{Path: credentialFile}
			f.Contents.Source, f.Contents.Compression = test.source, test.compression
			config.Storage.Files = []ignitionFile{{Path: "/etc/other"}, f}
			got, err := credentialProviders(config)
			if (err != nil) != test.bad {
				t.Fatalf("got %+v, %v", got, err)
			}
			if !test.bad && (len(got.Providers) != 1 || got.Providers[0].Name != "ecr-credential-provider") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func FuzzParseIgnition(f *testing.F) {
	good, err := json.Marshal(map[string]any{
		"storage": map[string]any{"files": []any{map[string]any{"path": credentialFile,
			"contents": map[string]any{"source": "data:;base64,AAAA", "compression": "gzip"}}}},
		"systemd": map[string]any{"units": []any{map[string]any{"name": kubeletUnit,
			"contents": "[Service]\nExecStart=k"}}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var config ignition
		if json.Unmarshal(raw, &config) != nil {
			return
		}
		if provider, err := cloudProvider(config); err == nil && strings.ContainsAny(provider, "$%") {
			t.Errorf("provider %q", provider)
		}
		if providers, err := credentialProviders(config); err == nil && providers != nil {
			for _, p := range providers.Providers {
				if !legalProvider(p.Name) {
					t.Errorf("provider %q", p.Name)
				}
			}
		}
	})
}

func FuzzBundle(f *testing.F) {
	good, err := clustertest.Certificate("fuzz")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(slices.Concat(good, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), good))
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := bundle(raw)
		if err != nil {
			return
		}
		if twice, err := bundle([]byte(once)); err != nil || twice != once {
			t.Errorf("a bundle changes when it is decoded a second time: %v", err)
		}
	})
}
