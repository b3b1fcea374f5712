package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Users read the message as the explanation of the reason in the same row. So both must come from the same condition.
func TestA75_TheColumnsReasonAndMessageAreOfOneCondition(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("crd/*_*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("%d CRDs, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err = yaml.UnmarshalStrict(text, &crd); err != nil {
			t.Fatal(err)
		}
		paths := map[string]string{}
		for _, column := range crd.Spec.Versions[0].AdditionalPrinterColumns {
			paths[column.Name] = column.JSONPath
		}
		reasonOf, hasReason := strings.CutSuffix(paths["Reason"], ".reason")
		messageOf, hasMessage := strings.CutSuffix(paths["Message"], ".message")
		if !hasReason || !hasMessage || reasonOf != messageOf {
			t.Errorf("%s: the reason is %s, the message is %s", file, paths["Reason"], paths["Message"])
		}
	}
}
