package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := command().Execute(); err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var root, version, image, out string
	c := &cobra.Command{
		Use: "chart", Short: "Make the Helm chart and the manifest of the bootstrap provider out of config/", Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			archive, err := build(root, version, image, out)
			if err != nil {
				return err
			}
			if err = components(root, image, out); err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), archive)
			return err
		},
	}
	c.Flags().StringVar(&root, "root", ".", "top `directory` of the source tree")
	c.Flags().StringVar(&version, "version", "0.1.0", "`version` of the chart and of the operator that it installs")
	c.Flags().StringVar(&image, "image", "", "`name` of the operator's image without its tag, and optionally with "+
		"its digest: the defaults of image.repository and image.digest; if empty, the name in config/")
	c.Flags().StringVar(&out, "out", "out/chart", "`directory` to write the chart and its archive to")
	return c
}
