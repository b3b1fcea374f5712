package acceptance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"
)

// plugin is the form of a plugin's file, as far as ours uses it.
type plugin struct {
	Config struct {
		Driver       string `json:"driver"`
		Name         string `json:"plugin-name"`
		Description  string `json:"description"`
		ResultFormat string `json:"result-format"`
	} `json:"sonobuoy-config"`
	Spec corev1.Container `json:"spec"`
}

func TestA76_ThePluginForSonobuoyHasFlagsThatThereAre(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../cmd/wmco-e2e/wmco-e2e.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var p plugin
	if err = yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatal(err)
	}
	if p.Config.Driver != "Job" || p.Config.ResultFormat != "junit" || p.Config.Name != "wmco-e2e" || p.Spec.Name != "plugin" {
		t.Errorf("%+v", p)
	}
	if len(p.Spec.VolumeMounts) != 1 || p.Spec.VolumeMounts[0] != (corev1.VolumeMount{Name: "results", MountPath: sonobuoyDefault}) {
		t.Errorf("results are lost: %v", p.Spec.VolumeMounts)
	}
	// make image gives the image the tag of the operator's, and make release its digest.
	installed, err := os.ReadFile("../../config/default/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, tag, _ := strings.Cut(p.Spec.Image, ":")
	if !strings.Contains(string(installed), "newTag: "+tag+"\n") {
		t.Errorf("nothing makes the image %s", p.Spec.Image)
	}
	// The host in a comment of the file must also be valid.
	args := p.Spec.Args
	for line := range strings.Lines(string(text)) {
		if _, flag, ok := strings.Cut(strings.TrimSpace(line), ": --host="); ok {
			args = append(args, "--host="+flag)
		}
	}
	root := newCommand(genericiooptions.NewTestIOStreamsDiscard())
	if err = root.ParseFlags(args); err != nil || !root.Flags().Changed("sonobuoy") || !root.Flags().Changed("host") {
		t.Errorf("%v: %v", args, err)
	}
}

// Whoever waits for results would wait for hours.
func TestA76_SonobuoyHearsOfARunThatCouldNotBegin(t *testing.T) {
	for name, args := range map[string][]string{"no cluster": {"--server=http://127.0.0.1:1"}, "a host that is none": {"--host=x"},
		"nothing to clean up": {"--cleanup", "--server=http://127.0.0.1:1"}} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			t.Setenv(sonobuoyVariable, directory)
			t.Setenv("KUBECONFIG", filepath.Join(directory, "none"))
			streams, _, _, errOut := genericiooptions.NewTestIOStreams()
			if code := Main(t.Context(), append([]string{"wmco-e2e", "--sonobuoy"}, args...), streams); code != exitError {
				t.Errorf("it ends with %d: %s", code, errOut)
			}
			// If a server has never answered, the command doesn't wait for it.
			if strings.Contains(errOut.String(), "waiting for it") || !strings.Contains(errOut.String(), "error: ") {
				t.Errorf("it says %s", errOut)
			}
			done, err := os.ReadFile(filepath.Join(directory, sonobuoyDone))
			if err != nil {
				t.Fatal(err)
			}
			files := unpacked(t, string(done))
			var read junitSuites
			if err = xml.Unmarshal(files[junitFile], &read); err != nil || read.Failures != 1 || files["index.html"] == nil {
				t.Errorf("%v: %+v", err, read)
			}
		})
	}
}

func unpacked(t *testing.T, name string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}
