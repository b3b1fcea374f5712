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

// plugin contains the fields of a Sonobuoy plugin file that this project uses.
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
		t.Errorf("Sonobuoy doesn't mount the directory of the results: %v", p.Spec.VolumeMounts)
	}
	// The plugin must use the operator's image tag, because "make image" builds the image with this tag. "make release"
	// writes the digest.
	installed, err := os.ReadFile("../../config/default/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, tag, _ := strings.Cut(p.Spec.Image, ":")
	if !strings.Contains(string(installed), "newTag: "+tag+"\n") {
		t.Errorf("no make target builds the image %s", p.Spec.Image)
	}
	// A comment in the file shows an example host. Its syntax must be valid.
	args := p.Spec.Args
	for line := range strings.Lines(string(text)) {
		if _, flag, ok := strings.Cut(strings.TrimSpace(line), ": --host="); ok {
			args = append(args, "--host="+flag)
		}
	}
	root := newCommand(genericiooptions.NewTestIOStreamsDiscard())
	if err = root.ParseFlags(args); err != nil || !root.Flags().Changed("sonobuoy") || !root.Flags().Changed("host") {
		t.Errorf("the arguments %v are invalid: %v", args, err)
	}
}

// A run that can't begin must still report to Sonobuoy. Otherwise the user waits for hours.
func TestA76_SonobuoyHearsOfARunThatCouldNotBegin(t *testing.T) {
	for name, args := range map[string][]string{"no cluster": {"--server=http://127.0.0.1:1"}, "a host that is none": {"--host=x"},
		"nothing to clean up": {"--cleanup", "--server=http://127.0.0.1:1"}} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			t.Setenv(sonobuoyVariable, directory)
			t.Setenv("KUBECONFIG", filepath.Join(directory, "none"))
			streams, _, _, errOut := genericiooptions.NewTestIOStreams()
			if code := Main(t.Context(), append([]string{"wmco-e2e", "--sonobuoy"}, args...), streams); code != exitError {
				t.Errorf("the program ended with exit code %d: %s", code, errOut)
			}
			// If a server has never answered, the program fails at once instead of waiting for it.
			if strings.Contains(errOut.String(), "waiting for it") || !strings.Contains(errOut.String(), "error: ") {
				t.Errorf("the output is %s", errOut)
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
